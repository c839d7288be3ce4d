"""A writer of safetensors files from numpy arrays, and a view of one without reading it.

The reader of headers is convert/safetensors_file.py; bfloat16 is stored as uint16 here.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
import sys
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
    tensors, found = read_header(path), {}
    stored = _mapped(path)
    for tensor in tensors:
        dtype, n = _TYPES[tensor.dtype], math.prod(tensor.shape)
        values = np.frombuffer(stored, dtype, n, tensor.offset) if n else np.empty(0, dtype)
        found[tensor.name] = values.reshape(tensor.shape)
    return found


def _mapped(path: Path) -> mmap.mmap:
    """A file as memory. Before Python 3.13 it keeps a descriptor open, so there is one of these for each file."""
    with path.open("rb") as file:
        if sys.platform != "win32" and sys.version_info >= (3, 13):
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, trackfd=False)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_notes(path: Path) -> dict[str, str]:
    """The header's metadata. The file must be sound (`map_tensors`)."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return dict(json.loads(file.read(length)).get("__metadata__", {}))
