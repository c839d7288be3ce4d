"""A drafter GGUF, written in the dialects of other projects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFValueType

from dflash_local.convert.gguf_metadata import StoredGgufTensor, Value, array, boolean, f32, read_header, string, u32
from dflash_local.convert.writer import OutputTensor, write_gguf

Keys = dict[str, Value]
_MASK = "tokenizer.ggml.mask_token_id"
_TAPS = "dflash.target_layers"

# dialect -> architecture; and tensors of upstream's dialect under its names
_ARCHS = {
    "A0": "dflash",
    "D": "dflash",
    "B": "dflash-draft",
    "C": "qwen35-dflash-draft",
    "C gemma4": "gemma4-dflash-draft",
    "E": "dspark",
}
_TENSORS: dict[str, dict[str, str]] = {
    "A0": {},
    "D": {r"fc\.weight": "dflash_fc.weight", r"enc\.output_norm\.weight": "dflash_hidden_norm.weight"},
    "B": {
        r"fc\.weight": "dflash_fc.weight",
        r"enc\.output_norm\.weight": "dflash_hidden_norm.weight",
        r"(blk\.\d+)\.ffn_norm\.weight": r"\1.post_attention_norm.weight",
    },
    "C": {
        r"fc\.weight": "dflash.fc.weight",
        r"enc\.output_norm\.weight": "dflash.hidden_norm.weight",
        r"markov_(w[12])\.weight": r"dflash.dspark.markov.\1",
        r"conf_proj\.(weight|bias)": r"dflash.dspark.confidence.\1",
    },
    "E": {
        r"fc\.weight": "dspark.fc.weight",
        r"enc\.output_norm\.weight": "dspark.hidden_norm.weight",
        r"markov_w1\.weight": "dspark.markov_head_a.weight",
        r"markov_w2\.weight": "dspark.markov_head_b.weight",
        r"conf_proj\.(weight|bias)": r"dspark.confidence_head.\1",
    },
}
_TENSORS["C gemma4"] = _TENSORS["C"]
DIALECTS = tuple(_ARCHS)


def in_dialect(name: str, metadata: Mapping[str, Value]) -> Keys:
    """The keys of a drafter in upstream's dialect as `name` writes them."""
    arch = _ARCHS[name]
    taps = array(GGUFValueType.UINT32, tuple(layer - 1 for layer in metadata[_TAPS].data))
    own = {"block_size": metadata["dflash.block_size"], "mask_token_id": metadata[_MASK], "target_layer_ids": taps}
    keys: Keys = {"general.architecture": string(arch), "general.name": string("a drafter")}
    for key, value in metadata.items():
        if key.startswith("dflash.") and key not in (_TAPS, "dflash.block_size", "dflash.sample_from_anchor"):
            keys[arch + key.removeprefix("dflash")] = value
        elif key.startswith("tokenizer.") and name in ("A0", "B", "D") and key != _MASK:
            keys[key] = value
    if name == "A0":
        return (
            keys
            | {"dflash.block_size": own["block_size"], _MASK: own["mask_token_id"]}
            | {"dflash.dflash.target_layer_ids": taps}
        )
    if name == "E":
        keys |= {"tokenizer.ggml.model": string("none"), "dspark.vocab_size": u32(40)}
        own["target_layers"] = own.pop("target_layer_ids")
        return keys | {f"dspark.dspark.{key}": value for key, value in own.items()}
    keys |= {f"{arch}.dflash.{key}": value for key, value in own.items()}
    if name == "B":
        keys |= {
            f"{arch}.attention.causal": boolean(False),
            f"{arch}.dflash.n_target_features": u32(len(taps.data) * metadata["dflash.embedding_length"].data),
        }
    if name.startswith("C"):
        keys |= {f"{arch}.dflash.n_target_layers": u32(len(taps.data)), f"{arch}.vocab_size": u32(40)}
        keys |= {f"{arch}.dflash.context_kv_layer_norm": u32(0), f"{arch}.dflash.domino.enabled": boolean(False)}
    if name == "D":
        keys["dflash.dflash.num_target_layers"] = u32(6)
    return keys


def renamed(dialect: str, tensor: str) -> str:
    """A tensor's name in a dialect."""
    for pattern, name in _TENSORS[dialect].items():
        if re.fullmatch(pattern, tensor):
            return re.sub(pattern, name, tensor)
    return tensor


def write_dialect(path: Path, name: str, source: Path, changes: Mapping[str, Value | None] | None = None) -> Path:
    """The drafter `source`, which is in upstream's dialect, in another one. `changes` replaces keys, None removes
    them."""
    metadata, tensors = read_header(source)
    keys = {**in_dialect(name, metadata), **(changes or {})}
    write_tensors(path, {k: v for k, v in keys.items() if v}, {renamed(name, t): tensors[t] for t in tensors})
    return path


def write_tensors(path: Path, keys: Mapping[str, Value], tensors: Mapping[str, StoredGgufTensor]) -> None:
    outputs = [OutputTensor.of(t, name) for name, t in tensors.items()]
    write_gguf(path, keys, outputs, lambda name, n_bytes: None)


def raw(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Type, shape and bytes of each tensor."""
    return {
        name: (t.type.name, t.shape, b"".join(chunk.tobytes() for chunk in t.chunks()))
        for name, t in read_header(path)[1].items()
    }


def plain(metadata: Mapping[str, Value]) -> dict[str, object]:
    """Keys as plain values: a u32 and an i32 of the same number are the same."""

    def simple(value: Value) -> object:
        data = value.data
        if value.type == GGUFValueType.FLOAT32:
            return np.float32(data)
        if value.item is not None:
            return [simple(Value(value.item, item)) for item in data]
        return data.encode() if isinstance(data, str) else data

    return {key: simple(value) for key, value in metadata.items()}


__all__ = ["DIALECTS", "f32", "plain", "raw", "write_dialect", "write_tensors"]
