"""Tiny random models of architectures other than the pocket model's, so that the fuzzer reaches their loaders and
graphs too.

Shapes and keys follow llama.cpp's src/models/{llama,qwen3moe,qwen35,openai-moe,gemma3}.cpp; the tokenizer is the pocket
target's.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from .gguf_image import ARRAY, BOOL, F32, I32, STRING, U32, Image, Pair, Tensor, array, number, text

LAYERS, EMBD, FF, HEADS, HEADS_KV, HEAD = 2, 64, 96, 4, 2, 16
EXPERTS, EXPERT_FF = 8, 32

Shapes = dict[str, list[int]]
Keys = dict[str, float | bool | str | list[int] | list[bool]]


def weights(shapes: Shapes, rng: random.Random) -> list[Tensor]:
    """F32 tensors of small random numbers, norms around 1."""
    out = []
    for name, dims in shapes.items():
        n, middle = 1, 1.0 if "norm" in name else 0.0
        for d in dims:
            n *= d
        out.append(
            Tensor(name.encode(), dims, 0, struct.pack(f"<{n}f", *(middle + rng.gauss(0, 0.1) for _ in range(n))))
        )
    return out


def pair(key: str, value: float | bool | str | list[int] | list[bool]) -> Pair:
    if isinstance(value, list):
        kind = BOOL if isinstance(value[0], bool) else I32
        return Pair(key.encode(), ARRAY, array(kind, [number(kind, item) for item in value]))
    if isinstance(value, str):
        return Pair(key.encode(), STRING, text(value.encode()))
    kind = BOOL if isinstance(value, bool) else F32 if isinstance(value, float) else U32
    return Pair(key.encode(), kind, number(kind, value))


def image(
    name: str,
    pocket: Image,
    keys: Keys,
    layer: Callable[[int], Shapes],
    *,
    layers: int = LAYERS,
    others: Shapes | None = None,
) -> Image:
    """A model of `layers` layers with the tokenizer of `pocket`; `others`: tensors beside the layers and the usual
    three."""
    rng = random.Random(name)
    vocab = len(pocket.find(b"tokenizer.ggml.tokens").items())
    keys = {
        "block_count": layers,
        "context_length": 512,
        "embedding_length": EMBD,
        "feed_forward_length": FF,
        "rope.freq_base": 1e4,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS_KV,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "rope.dimension_count": HEAD,
        **keys,
    }
    pairs = [pair("general.architecture", name)]
    pairs += [pair(f"{name}.{key}", value) for key, value in keys.items()]
    pairs += [p for p in pocket.pairs if p.key.startswith(b"tokenizer.")]
    shapes: Shapes = {"token_embd.weight": [EMBD, vocab], "output_norm.weight": [EMBD], "output.weight": [EMBD, vocab]}
    for i in range(layers):
        shapes |= {f"blk.{i}.{part}": dims for part, dims in layer(i).items()}
    return Image(pairs, weights(shapes | (others or {}), rng))


def attention(q: int | None = None, head: int = HEAD) -> Shapes:
    return {"attn_norm.weight": [EMBD], "attn_q.weight": [EMBD, q or HEADS * head],
            "attn_k.weight": [EMBD, HEADS_KV * head], "attn_v.weight": [EMBD, HEADS_KV * head],
            "attn_output.weight": [HEADS * head, EMBD]}  # fmt: skip


def qk_norm(head: int = HEAD) -> Shapes:
    return {"attn_q_norm.weight": [head], "attn_k_norm.weight": [head]}


def dense() -> Shapes:
    return {"ffn_gate.weight": [EMBD, FF], "ffn_up.weight": [EMBD, FF], "ffn_down.weight": [FF, EMBD]}


def experts() -> Shapes:
    return {"ffn_gate_inp.weight": [EMBD, EXPERTS], "ffn_gate_exps.weight": [EMBD, EXPERT_FF, EXPERTS],
            "ffn_up_exps.weight": [EMBD, EXPERT_FF, EXPERTS],
            "ffn_down_exps.weight": [EXPERT_FF, EMBD, EXPERTS]}  # fmt: skip


EXPERT_KEYS: Keys = {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": EXPERT_FF}


def llama(pocket: Image) -> Image:
    return image("llama", pocket, {}, lambda _: attention() | dense() | {"ffn_norm.weight": [EMBD]})


def qwen3moe(pocket: Image) -> Image:
    return image(
        "qwen3moe", pocket, EXPERT_KEYS, lambda _: attention() | qk_norm() | experts() | {"ffn_norm.weight": [EMBD]}
    )


def gpt_oss(pocket: Image) -> Image:
    biases = {"attn_q.bias": [HEADS * HEAD], "attn_k.bias": [HEADS_KV * HEAD],
              "attn_v.bias": [HEADS_KV * HEAD], "attn_output.bias": [EMBD],
              "ffn_gate_inp.bias": [EXPERTS], "ffn_gate_exps.bias": [EXPERT_FF, EXPERTS],
              "ffn_up_exps.bias": [EXPERT_FF, EXPERTS], "ffn_down_exps.bias": [EMBD, EXPERTS],
              "attn_sinks.weight": [HEADS], "post_attention_norm.weight": [EMBD]}  # fmt: skip
    return image(
        "gpt-oss", pocket, EXPERT_KEYS | {"attention.sliding_window": 32}, lambda _: attention() | experts() | biases
    )


def gemma3(pocket: Image) -> Image:
    norms = {"ffn_norm.weight": [EMBD], "post_attention_norm.weight": [EMBD], "post_ffw_norm.weight": [EMBD]}
    return image(
        "gemma3", pocket, {"attention.sliding_window": 32}, lambda _: attention() | qk_norm() | dense() | norms
    )


def qwen35(pocket: Image) -> Image:
    """One gated delta-net layer, one full-attention layer."""
    state, heads_k, heads_v, kernel = 16, 2, 4, 4
    key, value = state * heads_k, state * heads_v
    recurrent = {
        "attn_norm.weight": [EMBD],
        "attn_qkv.weight": [EMBD, 2 * key + value],
        "attn_gate.weight": [EMBD, value],
        "ssm_conv1d.weight": [kernel, 2 * key + value],
        "ssm_dt.bias": [heads_v],
        "ssm_a": [heads_v],
        "ssm_norm.weight": [state],
        "ssm_beta.weight": [EMBD, heads_v],
        "ssm_alpha.weight": [EMBD, heads_v],
        "ssm_out.weight": [value, EMBD],
    }
    keys: Keys = {
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": value,
        "ssm.state_size": state,
        "ssm.time_step_rank": heads_v,
    }
    keys |= {"ssm.group_count": heads_k, "full_attention_interval": 2, "rope.dimension_sections": [4, 2, 2, 0]}
    rest = dense() | {"post_attention_norm.weight": [EMBD]}
    return image(
        "qwen35", pocket, keys, lambda i: (recurrent if i == 0 else attention(2 * HEADS * HEAD) | qk_norm()) | rest
    )


ARCHITECTURES: dict[str, Callable[[Image], Image]] = {
    "llama": llama,
    "qwen3moe": qwen3moe,
    "gpt-oss": gpt_oss,
    "gemma3": gemma3,
    "qwen35": qwen35,
}


# ---- encoders (src/models/{nomic-bert,modern-bert,jina-bert-v2,gemma-embedding}.cpp) ----


def encoder(
    name: str, pocket: Image, keys: Keys, layer: Callable[[int], Shapes], others: Shapes, *, norm: bool = False
) -> Image:
    """`norm`: there is one after the last layer."""
    keys = {"attention.head_count_kv": HEADS, "attention.layer_norm_epsilon": 1e-12, "attention.causal": False,
            "pooling_type": 1, **keys}  # fmt: skip
    made = image(name, pocket, keys, layer, others=others)
    unused = {b"output.weight"} if norm else {b"output.weight", b"output_norm.weight"}
    made.tensors = [tensor for tensor in made.tensors if tensor.name not in unused]
    made.pairs.append(pair("tokenizer.ggml.token_type_count", 2))
    return made


def norms(*names: str, bias: bool = True) -> Shapes:
    return {f"{name}.{part}": [EMBD] for name in names for part in (("weight", "bias") if bias else ("weight",))}


def full_attention() -> Shapes:
    return {f"attn_{part}.weight": [EMBD, EMBD] for part in ("q", "k", "v", "output")}


_TYPES: Shapes = {"token_types.weight": [EMBD, 2], **norms("token_embd_norm")}


def nomic_bert(pocket: Image) -> Image:
    rest = dense() | norms("attn_output_norm", "layer_output_norm")
    return encoder("nomic-bert", pocket, {}, lambda _: full_attention() | rest, _TYPES)


def jina_bert_v2(pocket: Image) -> Image:
    biases: Shapes = {"attn_output.bias": [EMBD], "ffn_down.bias": [EMBD]}
    rest = dense() | biases | norms("attn_output_norm", "layer_output_norm")
    return encoder("jina-bert-v2", pocket, {}, lambda _: full_attention() | rest, _TYPES)


def modern_bert(pocket: Image) -> Image:
    layer: Shapes = {"attn_qkv.weight": [EMBD, 3 * EMBD], "attn_output.weight": [EMBD, EMBD],
                     "ffn_up.weight": [EMBD, 2 * FF], "ffn_down.weight": [FF, EMBD]}  # fmt: skip
    layer |= norms("attn_norm", "ffn_norm", bias=False)
    return encoder(
        "modern-bert",
        pocket,
        {"attention.sliding_window": 8, "attention.sliding_window_pattern": 2, "rope.freq_base_swa": 1e4},
        lambda _: layer,
        norms("token_embd_norm", bias=False),
        norm=True,
    )


def gemma_embedding(pocket: Image) -> Image:
    layer = attention() | qk_norm() | dense()
    layer |= norms("ffn_norm", "post_attention_norm", "post_ffw_norm", bias=False)
    keys: Keys = {"attention.head_count_kv": HEADS_KV, "attention.sliding_window": 8,
                  "attention.sliding_window_pattern": 2, "dense_2_feat_in": EMBD,
                  "dense_2_feat_out": 48, "dense_3_feat_in": 48, "dense_3_feat_out": EMBD}  # fmt: skip
    wide: Shapes = {"dense_2.weight": [EMBD, 48], "dense_3.weight": [48, EMBD]}
    return encoder("gemma-embedding", pocket, keys, lambda _: layer, wide, norm=True)


ENCODERS: dict[str, Callable[[Image], Image]] = {
    "nomic-bert": nomic_bert,
    "jina-bert-v2": jina_bert_v2,
    "modern-bert": modern_bert,
    "gemma-embedding": gemma_embedding,
}
