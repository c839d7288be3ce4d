"""A random Qwen3 target over twelve tokens, with random DFlash and DFlash 2 drafters, and its exact probabilities in
numpy.

All embeddings share a constant channel that the output head turns into a fixed preference for some tokens. A drafter
borrows both, so random weights already guess well enough that drafts of every length get accepted; attention and the
other channels make the target's probabilities depend on the whole context.
"""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

VOCAB = [*"abcdefghij", "<mask>", "<end>"]
MASK, END = 10, 11
BLOCK_SIZE = 4
TARGET_LAYERS, DRAFTER_LAYERS, TAPS = 3, 1, [1, 2]
WIDTH, FF, HEADS, KV_HEADS, HEAD = 64, 96, 4, 2, 16
CONTEXT, EPSILON, ROPE_BASE = 512, 1e-6, 10000.0
CONV = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 8, "selector_top_k": 4}
CONSTANT = 4.0  # the shared channel of the embeddings
PREFERENCE, RARE = 0.5, -1.0  # its weights in the output head: standard deviation, and the value for <end>


def _layer(rng: np.random.Generator, prefix: str) -> dict[str, Array]:
    shapes = {
        "attn_q": (HEADS * HEAD, WIDTH),
        "attn_k": (KV_HEADS * HEAD, WIDTH),
        "attn_v": (KV_HEADS * HEAD, WIDTH),
        "attn_output": (WIDTH, HEADS * HEAD),
        "ffn_gate": (FF, WIDTH),
        "ffn_up": (FF, WIDTH),
        "ffn_down": (WIDTH, FF),
    }
    norms = {"attn_norm": WIDTH, "ffn_norm": WIDTH, "attn_q_norm": HEAD, "attn_k_norm": HEAD}
    tensors = {f"{prefix}.{n}.weight": rng.normal(0, s[1] ** -0.5, s).astype(np.float32) for n, s in shapes.items()}
    return tensors | {
        f"{prefix}.{n}.weight": rng.uniform(0.8, 1.2, size).astype(np.float32) for n, size in norms.items()
    }


def target_tensors(seed: int = 0) -> dict[str, Array]:
    """Weights of the target by GGUF name, numpy order."""
    rng = np.random.default_rng(seed)
    tensors = {
        "token_embd.weight": rng.normal(0, 1, (len(VOCAB), WIDTH)).astype(np.float32),
        "output.weight": rng.normal(0, 0.1, (len(VOCAB), WIDTH)).astype(np.float32),
        "output_norm.weight": np.ones(WIDTH, np.float32),
    }
    tensors["token_embd.weight"][:, 0] = CONSTANT
    tensors["output.weight"][:, 0] = rng.normal(0, PREFERENCE, len(VOCAB))
    tensors["output.weight"][END, 0] = RARE
    for i in range(TARGET_LAYERS):
        tensors |= _layer(rng, f"blk.{i}")
    return tensors


def drafter_tensors(kind: str, seed: int = 1) -> dict[str, Array]:
    """Weights of a drafter of `kind` "dflash" or "dflash2" by GGUF name, numpy order."""
    rng = np.random.default_rng(seed)
    tensors = {
        "fc.weight": rng.normal(0, (len(TAPS) * WIDTH) ** -0.5, (WIDTH, len(TAPS) * WIDTH)).astype(np.float32),
        "enc.output_norm.weight": np.ones(WIDTH, np.float32),
        "output_norm.weight": np.ones(WIDTH, np.float32),
    }
    for i in range(DRAFTER_LAYERS):
        tensors |= _layer(rng, f"blk.{i}")
        if kind == "dflash2":
            kernel, groups = CONV["conv_kernel_size"], WIDTH // CONV["conv_group_size"]
            for conv in ("attn_conv", "ffn_conv"):
                base = rng.normal(0, 0.1, (2, kernel, WIDTH)).astype(np.float32)
                base[:, 0] += 1.0
                tensors[f"blk.{i}.{conv}_base"] = base
                tensors[f"blk.{i}.{conv}_proj.weight"] = rng.normal(0, 0.02, (2 * kernel * groups, WIDTH)).astype(
                    np.float32
                )
    if kind == "dflash2":
        rank = CONV["selector_rank"]
        for book in ("selector_predecessor", "selector_successor"):
            tensors[f"{book}.weight"] = rng.normal(0, 0.5, (len(VOCAB), rank)).astype(np.float32)
        tensors["selector_hidden.weight"] = rng.normal(0, WIDTH**-0.5, (rank, WIDTH)).astype(np.float32)
    return tensors


def write_target(path: Path, tensors: dict[str, Array]) -> Path:
    """Write the target as GGUF; returns `path`."""
    return write(header(path, "qwen3", TARGET_LAYERS), tensors)


def write_drafter(path: Path, kind: str, tensors: dict[str, Array]) -> Path:
    """Write a drafter as GGUF in upstream's `dflash` dialect; returns `path`."""
    writer = header(path, "dflash", DRAFTER_LAYERS)
    writer.add_mask_token_id(MASK)
    writer.add_array("dflash.target_layers", TAPS)
    for key, value in ({"block_size": BLOCK_SIZE} | (CONV if kind == "dflash2" else {})).items():
        writer.add_uint32(f"dflash.{key}", value)
    writer.add_causal_attention(False)
    return write(writer, tensors)


def header(path: Path, architecture: str, layers: int) -> gguf.GGUFWriter:
    """A writer of a GGUF with the shape and the tokens of these models."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_rope_dimension_count(HEAD)
    writer.add_vocab_size(len(VOCAB))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(VOCAB)
    writer.add_token_types([gguf.TokenType.NORMAL] * MASK + [gguf.TokenType.CONTROL] * 2)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(END)
    writer.add_add_bos_token(False)
    return writer


def write(writer: gguf.GGUFWriter, tensors: dict[str, Array]) -> Path:
    """Add the tensors and finish the file; returns its path."""
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    path = writer.path
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert path is not None
    return path


def _rms_norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + EPSILON) * weight


def _rotate(x: Array) -> Array:
    """NeoX rotary embedding of [n, heads, length, HEAD]."""
    angle = np.arange(x.shape[2])[:, None] * ROPE_BASE ** (-np.arange(HEAD // 2) * 2 / HEAD)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def target_logits(tensors: dict[str, Array], tokens: npt.NDArray[np.int64]) -> Array:
    """Logits [n, length, n_vocab] of the target for token rows [n, length]; row i ranks what follows token i."""
    n, length = tokens.shape
    hidden = tensors["token_embd.weight"][tokens]
    future = np.triu(np.full((length, length), -np.inf, np.float32), 1)
    for i in range(TARGET_LAYERS):
        weight = {key: tensors[f"blk.{i}.{key}.weight"] for key in _LAYER_KEYS}
        x = _rms_norm(hidden, weight["attn_norm"])
        q, k, v = ((x @ weight[f"attn_{name}"].T).reshape(n, length, -1, HEAD).transpose(0, 2, 1, 3) for name in "qkv")
        q, k = _rotate(_rms_norm(q, weight["attn_q_norm"])), _rotate(_rms_norm(k, weight["attn_k_norm"]))
        k, v = (np.repeat(y, HEADS // KV_HEADS, 1) for y in (k, v))
        attention = softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(HEAD, dtype=np.float32) + future)
        hidden = hidden + (attention @ v).transpose(0, 2, 1, 3).reshape(n, length, -1) @ weight["attn_output"].T
        x = _rms_norm(hidden, weight["ffn_norm"])
        gate = x @ weight["ffn_gate"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * (x @ weight["ffn_up"].T)) @ weight["ffn_down"].T
    return _rms_norm(hidden, tensors["output_norm.weight"]) @ tensors["output.weight"].T


_LAYER_KEYS = [
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_q_norm", "attn_k_norm", "attn_output", "ffn_norm", "ffn_gate",
    "ffn_up", "ffn_down",
]  # fmt: skip


def softmax(x: Array) -> Array:
    """Probabilities along the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
