"""A strict reader of safetensors files, which reads tensors by rows.

The `safetensors` package returns bf16 only as torch tensors, and numpy arrays only as a whole; this reader needs no
torch, and memory only for the requested rows. It is as strict as the format's own Rust implementation about what a
header says of its tensors, and refuses what the format forbids besides: names listed twice, blanks before the header.
Each defect of a file has its own message (tests/convert/test_safetensors_file.py has a test for each, and hands the
same files to that implementation).
Source: the format description in the safetensors repository's README.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter, mul
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dflash_local.errors import ConvertError

from .strict_json import DuplicateKeyError, strict_json

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
# All dtypes of the format, as of 0.8.0 of the package; few are converted (READABLE).
ITEM_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8,
             "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
             "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64}  # fmt: skip
ITEM_BYTES = {dtype: bits // 8 for dtype, bits in ITEM_BITS.items() if bits % 8 == 0}
_Bad = Callable[..., ConvertError]  # what is wrong, and of which tensor -> the error
_SAVE = "save the checkpoint unquantized, as bfloat16"
_UNKNOWN = f"it may be newer than this version of dflash-local: {_SAVE}"
READABLE: dict[str, npt.DTypeLike] = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8"}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor inside a file: `shape` is row-major as in PyTorch, `offset` counts bytes from the start of the file."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def n_rows(self) -> int:
        """Product of all dimensions but the last."""
        return math.prod(self.shape[:-1])

    def check_dtype(self, *, integer: bool = False) -> None:
        """Raise ConvertError unless `rows` can read this tensor: I64 for an integer one, else BF16, F16, F32 or F64."""
        readable = ("I64",) if integer else ("BF16", "F16", "F32", "F64")
        if self.dtype not in readable:
            raise ConvertError(
                f"tensor {self.name!r} has dtype {self.dtype}, it must be one of {', '.join(readable)}",
                field=self.name,
                hint=_SAVE,
            )

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows `[start, stop)` as `[rows, last dimension]`: float32, or int64 for an I64 tensor (see `check_dtype`)."""
        width = self.shape[-1] if self.shape else 1
        count = (stop - start) * width
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset + start * width * ITEM_BYTES[self.dtype])
                raw = np.fromfile(file, dtype=READABLE[self.dtype], count=count)
        except OSError as error:
            raise ConvertError(f"cannot read {self.path.name}: {error.strerror}", field=self.name) from error
        if raw.size != count:
            raise ConvertError(
                f"{self.path.name} ends inside tensor {self.name!r}", field=self.name, hint="download the shard again"
            )
        return self.as_numbers(raw.reshape(stop - start, width))

    def as_numbers(self, raw: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert data of READABLE[dtype] to float32 or int64."""
        if self.dtype == "BF16":
            return (raw.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):
            return raw if self.dtype in ("F32", "I64") else raw.astype(np.float32)


class _Entry(NamedTuple):
    """A tensor in a header; `begin` and `end` count bytes from the header's end."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors of the safetensors file `path`, whose header is checked, in file order.

    Raises ConvertError; `field` is the tensor to blame, or else the file's name.
    """

    def bad(what: str, field: str = path.name, hint: str = "download the file again") -> ConvertError:
        return ConvertError(f"{path.name} is not a valid safetensors file: {what}", field=field, hint=hint)

    text, size = _header_text(path, bad)
    start, end = 8 + len(text), 0
    entries = sorted(_entries(_json_object(text, bad), bad), key=attrgetter("begin", "end"))
    for entry in entries:
        name, n_bytes = entry.name, entry.end - entry.begin
        if entry.begin != end:
            raise bad(f"tensor {name!r} starts at byte {entry.begin}, the one before it ends at {end}", name)
        if n_bytes * 8 != math.prod(entry.shape) * ITEM_BITS[entry.dtype]:
            raise bad(f"tensor {name!r} is {entry.dtype} {list(entry.shape)} but has {n_bytes} bytes", name)
        end = entry.end
        if end > size - start:
            raise ConvertError(
                f"{path.name} is truncated: tensor {name!r} ends at byte {start + end}, the file at {size}",
                field=name,
                hint="download the shard again",
            )
    if end != size - start:
        raise bad(f"{size - start - end} bytes after the last tensor are unused")
    return [StoredTensor(path, entry.name, entry.dtype, entry.shape, start + entry.begin) for entry in entries]


def _header_text(path: Path, bad: _Bad) -> tuple[bytes, int]:
    """The header, which is JSON, and the file's size."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(8)
            if len(head) < 8:
                raise bad(f"it has {size} bytes, the header's length alone takes 8")
            (length,) = struct.unpack("<Q", head)
            if length > MAX_HEADER_BYTES:
                raise bad(f"its header claims {length} bytes, the format allows {MAX_HEADER_BYTES}")
            if length > size - 8:
                raise bad(f"its header claims {length} bytes but the file has {size}")
            return file.read(length), size
    except OSError as error:
        raise ConvertError(f"cannot read {path.name}: {error.strerror}", field=path.name) from error


def _json_object(text: bytes, bad: _Bad) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise bad("its header does not begin with '{'")
    try:
        header: dict[str, Any] = strict_json(text)
    except DuplicateKeyError as error:
        raise bad(f"the key {error.key!r} is listed twice", error.key) from None
    except ValueError as error:
        raise bad(f"its header is not JSON: {error}") from None
    return header


def _entries(header: dict[str, Any], bad: _Bad) -> Iterator[_Entry]:
    """Each tensor in the header, with types checked."""
    for name, entry in header.items():
        if name == "__metadata__":
            _check_metadata(entry, bad)
            continue
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
            raise bad(f"tensor {name!r} lacks dtype, shape or data_offsets", name)
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str):
            raise bad(f"the dtype of tensor {name!r} is no text", name)
        if dtype not in ITEM_BITS:
            raise bad(f"tensor {name!r} has the unknown dtype {dtype!r}", name, _UNKNOWN)
        if not _is_sizes(shape):
            raise bad(f"the shape of tensor {name!r} is not a list of sizes", name)
        if any(n >= 2**64 for n in accumulate(shape, mul)):  # even if another size is 0
            raise bad(f"tensor {name!r} of shape {shape} has more elements than any file", name)
        if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise bad(f"the data_offsets of tensor {name!r} are not a begin and an end", name)
        yield _Entry(name, dtype, tuple(shape), *offsets)


def _check_metadata(entry: object, bad: _Bad) -> None:
    if entry is not None and not (isinstance(entry, dict) and all(isinstance(text, str) for text in entry.values())):
        raise bad("'__metadata__' is not a map of strings", "__metadata__")


def _is_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)
