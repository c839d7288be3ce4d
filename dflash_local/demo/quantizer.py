"""Quantize tensors one chunk of rows at a time, into the same bytes that llama-quantize makes from a whole f16 file.

llama-quantize needs that f16 file first: for a 27b model 54 GB that are useless afterwards. The row functions here are
ggml's own, called through libdflash, and the choice of types is llama-quantize's (`llama_tensor_get_type` in
src/llama-quant.cpp) for qwen3, qwen3moe, qwen35 and dflash models; tests/demo/test_inflate.py compares the two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType

from dflash_local import native
from dflash_local.convert.outtypes import whole_blocks
from dflash_local.convert.writer import OutputTensor

Array = npt.NDArray[Any]

FILE_TYPES = {
    "f32": LlamaFileType.ALL_F32,
    "f16": LlamaFileType.MOSTLY_F16,
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
    "q4_k_m": LlamaFileType.MOSTLY_Q4_K_M,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
}
_MOST_TENSORS = {"f32": Type.F32, "f16": Type.F16, "q4_0": Type.Q4_0, "q4_k_m": Type.Q4_K, "q8_0": Type.Q8_0}
# Bytes of chunks that are read-only, which come again and again, by type, place in memory and shape, with the chunk
# itself, so that nothing else can come to this place.
_kept: dict[Any, tuple[Array, list[Array]]] = {}
_EXACT = ("_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d.weight", "conf_proj.weight")


def quantized(tensor: OutputTensor, ftype: str, *, n_layer: int, n_expert: int = 0) -> OutputTensor:
    """The f32 `tensor` as in a file of `ftype`, one of FILE_TYPES; `n_layer` and `n_expert` are its model's."""
    kind = _type(tensor.name, tensor.shape, ftype, n_layer, n_expert)
    if kind == tensor.type:
        return tensor
    convert = (lambda rows: rows.astype(np.float16)) if kind == Type.F16 else partial(_quantize, kind)
    n_threads = os.cpu_count() or 1

    def chunks() -> Iterator[Array]:
        with ThreadPoolExecutor(n_threads) as pool:
            before: tuple[Array, list[Array]] | None = None
            for rows in tensor.chunks():
                key = None if rows.flags.writeable else (kind, rows.ctypes.data, rows.shape, rows.strides)
                if key in _kept:
                    yield from _kept[key][1]
                    continue
                if before is None or not np.array_equal(before[0], rows):  # an embedding's padding is the same row
                    parts = (part for part in np.array_split(rows, n_threads) if len(part))
                    before = rows, list(pool.map(convert, parts))
                if key:
                    _kept[key] = before
                yield from before[1]

    return OutputTensor(tensor.name, tensor.shape, kind, chunks)


def _type(name: str, shape: tuple[int, ...], ftype: str, n_layer: int, n_expert: int) -> Type:
    if len(shape) < 2 or not name.endswith("weight") or name.endswith(_EXACT):
        return Type.F32
    kind = _MOST_TENSORS[ftype]
    if kind in (Type.F32, Type.F16):
        return kind
    found = re.match(r"blk\.(\d+)\.(\w+?)(_exps)?\.weight", name)
    layer, part = (int(found[1]), found[2]) if found else (0, name)
    if part == "output.weight" and ftype != "q8_0":
        kind = Type.Q6_K
    elif n_expert == 8 and part in ("attn_k", "attn_v"):
        kind = Type.Q8_0
    elif ftype == "q4_k_m":
        if n_expert == 8 and part == "attn_output":
            kind = Type.Q5_K
        elif part in ("attn_v", "attn_qkv", "ffn_down") and _gets_more_bits(layer, n_layer):
            kind = Type.Q6_K
    return whole_blocks(kind, shape[-1])


def _gets_more_bits(layer: int, n_layer: int) -> bool:
    """The first and the last eighth of the layers, and every third between them."""
    first = n_layer // 8
    return layer < first or layer >= 7 * n_layer // 8 or (layer - first) % 3 == 2


def _quantize(kind: Type, rows: Array) -> Array:
    """Rows [n, columns] as bytes, by way of f16, as if read from an f16 file."""
    values = rows.astype(np.float16).astype(np.float32)
    return native.quantize_rows(kind, values)
