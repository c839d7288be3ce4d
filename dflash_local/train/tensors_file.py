"""A writer of safetensors files from numpy arrays, and a view of one without reading it.

The reader of headers is convert/safetensors_file.py; bfloat16 is stored as uint16 here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dflash_local.convert.safetensors_file import read_header
from dflash_local.train.workspace import whole_file

_NAMES = {"float32": "F32", "uint16": "BF16", "int32": "I32", "int64": "I64"}
_TYPES = {name: np.dtype(kind).newbyteorder("<") for kind, name in _NAMES.items()}


def write_tensors(path: Path, tensors: Mapping[str, npt.NDArray[np.generic]], notes: Mapping[str, str]) -> None:
    """Write `path` whole or not at all; `notes` become its metadata. Raises DFlashError if the disk is full."""
    header: dict[str, object] = {"__metadata__": dict(notes)}
    at = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with whole_file(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).data)


def map_tensors(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """The tensors of a file, mapped. Raises ConvertError if it is damaged, cut off for instance."""
    return {
        tensor.name: np.memmap(path, _TYPES[tensor.dtype], "r", tensor.offset, tensor.shape)
        if tensor.n_rows * (tensor.shape[-1] if tensor.shape else 1)
        else np.empty(tensor.shape, _TYPES[tensor.dtype])
        for tensor in read_header(path)
    }


def read_notes(path: Path) -> dict[str, str]:
    """The header's metadata. The file must be sound (`map_tensors`)."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return dict(json.loads(file.read(length)).get("__metadata__", {}))
