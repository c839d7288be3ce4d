"""Copies of GGUF files with other keys and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, quants

from dflash_local.convert.gguf_metadata import StoredGgufTensor, Value, read_header, read_metadata
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.native import quantize_rows

Array = npt.NDArray[Any]
_TYPES = {"float32": GGMLQuantizationType.F32, "float16": GGMLQuantizationType.F16}


def numbers(path: Path) -> dict[str, Array]:
    """Every tensor of a GGUF as float32, row-major."""
    return {name: np.array(tensor.numbers()) for name, tensor in read_header(path)[1].items()}


def stored(tensor: StoredGgufTensor) -> Array:
    """A tensor as it is stored: f32 and f16 as such in its shape, other types as the bytes of each row."""
    names = {kind: name for name, kind in _TYPES.items()}
    rows = tensor.rows(0, tensor.n_rows)
    return rows.view(names[tensor.type]).reshape(tensor.shape) if tensor.type in names else rows


def texts(path: Path, key: str) -> list[str]:
    """The strings of the array `key`."""
    return [item.decode() for item in read_metadata(path)[key].data]


def output(name: str, data: Array, kind: GGMLQuantizationType | None = None) -> OutputTensor:
    """A tensor of these numbers: f32 or f16 as they are, or quantized as `kind`."""
    if kind is None:
        return OutputTensor(name, data.shape, _TYPES[data.dtype.name], lambda: [data])
    return OutputTensor(name, data.shape, kind, lambda: [quants.quantize(data, kind)])


def rewritten(
    source: Path,
    path: Path,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, OutputTensor | Array] | None = None,
) -> Path:
    """A copy of the GGUF `source` at `path`, which is returned. `keys` and `tensors` replace those of the file, or are
    added: keys as what the file's own is (a number, text or list) or as a Value."""
    metadata, found = read_header(source)
    outputs = {name: OutputTensor.of(tensor) for name, tensor in found.items()}
    for name, tensor in (tensors or {}).items():
        outputs[name] = tensor if isinstance(tensor, OutputTensor) else output(name, tensor)
    for key, value in (keys or {}).items():
        metadata[key] = value if isinstance(value, Value) else replace(metadata[key], data=value)
    write_gguf(path, metadata, list(outputs.values()))
    return path


def mixed(source: Path, path: Path, kinds: Sequence[GGMLQuantizationType]) -> Path:
    """A copy at `path`, which is returned, of the GGUF `source`: its f16 matrices have the types `kinds` in turns."""
    turns = cycle(kinds)
    tensors = {
        name: quantized(tensor, kind)
        for name, tensor in read_header(source)[1].items()
        if len(tensor.shape) == 2
        and tensor.type == GGMLQuantizationType.F16
        and (kind := next(turns)) != GGMLQuantizationType.F16
    }
    return rewritten(source, path, tensors=tensors)


def quantized(tensor: StoredGgufTensor, kind: GGMLQuantizationType) -> OutputTensor:
    """A tensor in another type, by ggml's own quantizer."""
    return OutputTensor(tensor.name, tensor.shape, kind, lambda: [quantize_rows(kind, tensor.numbers())])
