"""Tiny random encoders as GGUF files, and what BERT computes, in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter

Array = np.ndarray[Any, np.dtype[np.float32]]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNK, CLS, SEP = 1, 2, 3
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "learn", "paris", "is", "big", "small"]
# Words begin with the sign that SentencePiece has for a space, their other parts do not.
TOKENS = [*SPECIAL, *(f"\u2581{word}" for word in WORDS), "ing", "s", *(f"\u2581{n}" for n in "0123456789")]
EMBD, HEADS, FF, LAYERS, CONTEXT = 32, 4, 64, 2, 128
HEAD = EMBD // HEADS


def weights(seed: int = 1, *, rerank: bool = False) -> dict[str, Array]:
    """Of every tensor, row-major, norms around 1."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> Array:
        return random.normal(0, 0.3, shape).astype(np.float32)

    def norm(name: str) -> dict[str, Array]:
        return {f"{name}.weight": 1 + matrix(EMBD), f"{name}.bias": matrix(EMBD)}

    tensors = {
        "token_embd.weight": matrix(len(TOKENS), EMBD),
        "token_types.weight": matrix(2, EMBD),
        "position_embd.weight": matrix(CONTEXT, EMBD),
        **norm("token_embd_norm"),
    }
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors |= {f"{blk}.{part}.weight": matrix(EMBD, EMBD), f"{blk}.{part}.bias": matrix(EMBD)}
        tensors |= norm(f"{blk}.attn_output_norm") | norm(f"{blk}.layer_output_norm")
        tensors |= {f"{blk}.ffn_up.weight": matrix(FF, EMBD), f"{blk}.ffn_up.bias": matrix(FF)}
        tensors |= {f"{blk}.ffn_down.weight": matrix(EMBD, FF), f"{blk}.ffn_down.bias": matrix(EMBD)}
    if rerank:
        tensors |= {"cls.weight": matrix(EMBD, EMBD), "cls.bias": matrix(EMBD)}
        tensors |= {"cls.output.weight": matrix(1, EMBD), "cls.output.bias": matrix(1)}
    return tensors


def write_bert(
    path: Path, tensors: dict[str, Array], *, pooling: int = 2, keys: dict[str, int | list[str]] | None = None
) -> Path:
    """A GGUF of BERT with a tokenizer of words. `pooling` is the model's own: 2 is the first token's. `keys` are
    written in place of, or beside, what is right."""
    writer = GGUFWriter(path, "bert")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBD)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_uint32("bert.pooling_type", pooling)
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    for name, token in (("bos", CLS), ("cls", CLS), ("eos", SEP), ("seperator", SEP), ("unknown", UNK), ("padding", 0)):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    writer.add_chat_template("{{ messages }}")
    for name in ("bos", "eos", "sep"):
        writer.add_bool(f"tokenizer.ggml.add_{name}_token", True)
    for name, value in (keys or {}).items():
        writer.kv_data[0].pop(name, None)
        if isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_array(name, value)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def hidden(tensors: dict[str, Array], ids: list[int]) -> Array:
    """BERT's last hidden states [n, EMBD] (Devlin et al. 2018; norms after each addition), in float64."""
    w = {name: data.astype(np.float64) for name, data in tensors.items()}

    def linear(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["token_embd.weight"][ids] + w["token_types.weight"][0] + w["position_embd.weight"][: len(ids)]
    x = norm(x, "token_embd_norm")
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        q, k, v = (linear(x, f"{blk}.attn_{part}").reshape(-1, HEADS, HEAD) for part in "qkv")
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD)
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", chances, v).reshape(-1, EMBD)
        x = norm(x + linear(mixed, f"{blk}.attn_output"), f"{blk}.attn_output_norm")
        up = linear(x, f"{blk}.ffn_up")
        up = up * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = norm(x + linear(up, f"{blk}.ffn_down"), f"{blk}.layer_output_norm")
    return x.astype(np.float32)


def score(tensors: dict[str, Array], ids: list[int]) -> float:
    """The head over the first token."""
    first = hidden(tensors, ids)[0]
    head = np.tanh(tensors["cls.weight"] @ first + tensors["cls.bias"])
    return float((tensors["cls.output.weight"] @ head + tensors["cls.output.bias"])[0])


def unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)
