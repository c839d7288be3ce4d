"""Tiny random f32 targets over 128 tokens, one per kind of attention and memory that a tree may meet.

Those that the fuzzer has are taken from there; the others follow llama.cpp's
src/models/{qwen3vl,gemma4,mpt,lfm2,minimax-m3}.cpp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from tests.fuzz.architectures import (
    EMBD,
    EXPERT_FF,
    EXPERT_KEYS,
    EXPERTS,
    HEAD,
    HEADS_KV,
    LAYERS,
    Keys,
    Shapes,
    attention,
    dense,
    experts,
    gpt_oss,
    image,
    llama,
    pair,
    qk_norm,
    qwen3moe,
    qwen35,
)
from tests.fuzz.gguf_image import ARRAY, I32, STRING, U32, Image, Pair, Tensor, array, number, text

N_VOCAB = 128
WINDOW = 32  # of every sliding window here (the fuzzer's gpt-oss too)


def tokenizer(n_vocab: int = N_VOCAB) -> Image:
    """A byte-pair tokenizer without merges, its last word the end of text."""
    words = [f"w{i}" for i in range(n_vocab - 1)] + ["<end>"]
    kinds = [1] * (n_vocab - 1) + [3]
    return Image(
        [
            pair("tokenizer.ggml.model", "gpt2"),
            pair("tokenizer.ggml.pre", "qwen2"),
            Pair(b"tokenizer.ggml.tokens", ARRAY, array(STRING, [text(word.encode()) for word in words])),
            Pair(b"tokenizer.ggml.token_type", ARRAY, array(I32, [number(I32, kind) for kind in kinds])),
            Pair(b"tokenizer.ggml.merges", ARRAY, array(STRING, [text(b"w 0")])),
            pair("tokenizer.ggml.eos_token_id", n_vocab - 1),
            pair("tokenizer.ggml.bos_token_id", n_vocab - 1),
            pair("tokenizer.ggml.add_bos_token", False),
        ]
    )


def qwen3(base: Image, head: int = HEAD) -> Image:
    keys: Keys = {"attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head}
    return image(
        "qwen3", base, keys, lambda _: attention(head=head) | qk_norm(head) | dense() | {"ffn_norm.weight": [EMBD]}
    )


def qwen3vl(base: Image) -> Image:
    """M-RoPE: positions of text come in threes."""
    keys: Keys = {"rope.dimension_sections": [4, 2, 2, 0]}
    return image("qwen3vl", base, keys, lambda _: attention() | qk_norm() | dense() | {"ffn_norm.weight": [EMBD]})


def mpt(base: Image) -> Image:
    """ALiBi: the mask holds distances."""
    keys: Keys = {"attention.layer_norm_epsilon": 1e-5, "attention.max_alibi_bias": 8.0}
    shapes = {
        "attn_norm.weight": [EMBD], "attn_qkv.weight": [EMBD, EMBD + 2 * HEADS_KV * HEAD],
        "attn_output.weight": [EMBD, EMBD], "ffn_norm.weight": [EMBD], "ffn_up.weight": [EMBD, 96],
        "ffn_down.weight": [96, EMBD],
    }  # fmt: skip
    made = image("mpt", base, keys, lambda _: shapes)
    for i in range(LAYERS):  # GELU, see gemma4
        scale(made, f"blk.{i}.ffn_down.weight", 0.1)
    return made


def gemma4(base: Image, head: int = HEAD, per_layer: int = 8) -> Image:
    """Sliding window and full attention of different head sizes, per-layer embeddings; the last two layers use the K/V
    of the first two."""
    layers = 4
    heads = [head, 2 * head] * 2
    keys: Keys = {
        "attention.sliding_window": WINDOW, "attention.sliding_window_pattern": [True, False] * 2,
        "attention.shared_kv_layers": 2, "attention.key_length": heads[1], "attention.value_length": heads[1],
        "rope.dimension_count": heads[1], "attention.key_length_swa": head, "attention.value_length_swa": head,
        "rope.dimension_count_swa": head, "embedding_length_per_layer_input": per_layer,
        "final_logit_softcapping": 30.0,
    }  # fmt: skip
    norms = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "post_norm")

    def layer(i: int) -> Shapes:
        shapes = attention(head=heads[i]) | qk_norm(heads[i]) | dense() | {f"{norm}.weight": [EMBD] for norm in norms}
        if i >= 2:
            shapes = {name: dims for name, dims in shapes.items() if not name.startswith(("attn_k", "attn_v"))}
        return shapes | {"inp_gate.weight": [EMBD, per_layer], "proj.weight": [per_layer, EMBD]}

    others = {
        "per_layer_token_embd.weight": [per_layer * layers, N_VOCAB],
        "per_layer_model_proj.weight": [EMBD, per_layer * layers], "per_layer_proj_norm.weight": [per_layer],
        "rope_freqs.weight": [head],
    }  # fmt: skip
    made = image("gemma4", base, keys, layer, layers=layers, others=others)
    fill(made, "rope_freqs.weight", 1.0)
    for i in range(layers):
        # Attention is not scaled by the head size here: trained norms keep it from being a choice of one token, and so
        # must these.
        fill(made, f"blk.{i}.attn_q_norm.weight", head**-0.5)
        # GELU is a table of f16 in ggml, so these two branches round by leaps: they must not outweigh the attention.
        fill(made, f"blk.{i}.post_ffw_norm.weight", 0.2)
        fill(made, f"blk.{i}.post_norm.weight", 0.2)
    return made


def lfm2(base: Image) -> Image:
    """A hybrid: one layer of short convolution, one of attention."""
    conv = {
        "attn_norm.weight": [EMBD], "shortconv.conv.weight": [3, EMBD],
        "shortconv.in_proj.weight": [EMBD, 3 * EMBD], "shortconv.out_proj.weight": [EMBD, EMBD],
    }  # fmt: skip
    rest = dense() | {"ffn_norm.weight": [EMBD]}
    keys: Keys = {"attention.head_count_kv": [0, HEADS_KV], "shortconv.l_cache": 3}
    made = image("lfm2", base, keys, lambda i: (conv if i == 0 else attention() | qk_norm()) | rest)
    find(made, "output_norm.weight").name = b"token_embd_norm.weight"
    return made


def minimax_m3(base: Image) -> Image:
    """Sparse attention to blocks of positions, after a dense layer."""
    keys: Keys = EXPERT_KEYS | {
        "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_scale": 1.0,
        "expert_weights_norm": True, "expert_gating_func": 2, "attention.indexer.head_count": HEADS_KV,
        "attention.indexer.key_length": HEAD, "attention.indexer.top_k": 2, "attention.indexer.block_size": 16,
        "attention.indexer.local_blocks": 1,
    }  # fmt: skip
    sparse: Shapes = experts() | {
        "exp_probs_b.bias": [EXPERTS],
        "ffn_gate_shexp.weight": [EMBD, EXPERT_FF], "ffn_up_shexp.weight": [EMBD, EXPERT_FF],
        "ffn_down_shexp.weight": [EXPERT_FF, EMBD], "indexer.q_proj.weight": [EMBD, HEADS_KV * HEAD],
        "indexer.k_proj.weight": [EMBD, HEAD], "indexer.q_norm.weight": [HEAD], "indexer.k_norm.weight": [HEAD],
    }  # fmt: skip
    common = attention() | qk_norm() | {"ffn_norm.weight": [EMBD]}
    return image("minimax-m3", base, keys, lambda i: common | (dense() if i == 0 else sparse))


def find(made: Image, name: str) -> Tensor:
    return next(tensor for tensor in made.tensors if tensor.name == name.encode())


def fill(made: Image, name: str, value: float) -> None:
    """Set every number of a vector."""
    tensor = find(made, name)
    tensor.data = struct.pack("<f", value) * tensor.dims[0]


def scale(made: Image, name: str, factor: float) -> None:
    tensor = find(made, name)
    tensor.data = (np.frombuffer(tensor.data, np.float32) * np.float32(factor)).tobytes()


def all_experts(base: Image, make: Callable[[Image], Image]) -> Image:
    """A mixture that uses every expert: where a cache rounds, a choice of the best two would jump."""
    made = make(base)
    made.find(f"{made.architecture.decode()}.expert_used_count".encode()).body = number(U32, EXPERTS)
    return made


# Those whose memory can verify trees ...
TREES: dict[str, Callable[[Image], Image]] = {
    "qwen3": qwen3,
    "llama": llama,
    "gemma4": gemma4,
    "gpt-oss": gpt_oss,
    "qwen3moe": qwen3moe,
    "qwen3vl": qwen3vl,
    "mpt": mpt,
}
# ... and those that run chains only.
CHAINS: dict[str, Callable[[Image], Image]] = {"lfm2": lfm2, "qwen35": qwen35, "minimax-m3": minimax_m3}
MIXTURES: dict[str, Callable[[Image], Image]] = {
    f"{name}-all": partial(all_experts, make=TREES[name]) for name in ("qwen3moe", "gpt-oss")
}
# Heads of 64, which quantized caches rotate.
WIDE: dict[str, Callable[[Image], Image]] = {
    "qwen3-wide": partial(qwen3, head=64),
    "gemma4-wide": partial(gemma4, head=64),
}


def write(name: str, path: Path) -> Path:
    """Write the model of an architecture as GGUF; returns `path`."""
    path.write_bytes((TREES | CHAINS | MIXTURES | WIDE)[name](tokenizer()).encode()[0])
    return path
