"""The header of a GGUF file (keys and table of tensors), read strictly, with little memory, and written without loss.

`gguf.GGUFReader` keeps several numpy arrays per array element: for a vocabulary of 250,000 tokens with as many merges
that is more memory than the rest of a conversion; and `gguf.GGUFWriter` refuses empty arrays. Here strings stay the
bytes of the file, so copying a tokenizer loses nothing, and tensor data is not read. The rules are those of libdflash's
reader (ggml_ops/files/gguf_file.cpp), and more: names must be UTF-8. tests/engine/test_gguf_readers.py hands bad files
to both.
Source: docs/gguf.md of ggml.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType, quants

from dflash_local.errors import ModelError

from .gguf_parts import MAGIC, part_paths

# Keys about the layout of files, not about the model: a new file has its own.
_LAYOUT = ("general.alignment", "split.no", "split.count", "split.tensors.count")
_FORMATS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}
# Limits of ggml_ops/files/gguf_file.cpp.
_MAX_KEY_LENGTH = 65535  # docs/gguf.md of ggml
_MAX_STRING_LENGTH = 1 << 28
_MAX_ITEMS = 1 << 24  # of an array; vocabularies have some 10^5, and an item takes some 10 to 100 bytes here
_MAX_TENSOR_NAME = 63  # GGML_MAX_NAME - 1
_MIN_ALIGNMENT, _MAX_ALIGNMENT = 32, 1 << 20  # ggml-backend's TENSOR_ALIGNMENT: mapped buffers must have it
INTEGERS = frozenset(kind for kind, form in _FORMATS.items() if form in "BHIQbhiq")


@dataclass(frozen=True)
class Value:
    """One GGUF value. Strings are `bytes` or `str`; for an array, `data` is a sequence and `item` the type of its
    elements."""

    type: GGUFValueType
    data: Any
    item: GGUFValueType | None = None


@dataclass(frozen=True)
class StoredGgufTensor:
    """A tensor of a GGUF file, with row-major shape; its data begins `offset` bytes into the file."""

    path: Path
    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int

    @property
    def row_bytes(self) -> int:
        block, block_bytes = GGML_QUANT_SIZES[self.type]
        return self.shape[-1] // block * block_bytes

    @property
    def n_rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def n_bytes(self) -> int:
        return self.n_rows * self.row_bytes

    def rows(self, first: int, last: int) -> npt.NDArray[np.uint8]:
        """Rows from `first` to before `last` as stored, `[n, row_bytes]`. Raises ModelError."""
        with self._opened() as file:
            return self._read(file, first, last - first)

    def picked_rows(self, indices: Sequence[int]) -> npt.NDArray[np.uint8]:
        """These rows as stored, in this order, `[n, row_bytes]`. Raises ModelError."""
        rows = np.empty((len(indices), self.row_bytes), np.uint8)
        with self._opened() as file:
            for row, index in zip(rows, indices, strict=True):
                row[:] = self._read(file, index, 1)
        return rows

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("rb") as file:
                yield file
        except OSError as error:
            raise ModelError(f"cannot read {self.path.name}: {error.strerror}", field=self.name) from error

    def _read(self, file: BinaryIO, first: int, count: int) -> npt.NDArray[np.uint8]:
        file.seek(self.offset + first * self.row_bytes)
        data = file.read(count * self.row_bytes)
        if len(data) != count * self.row_bytes:  # it was longer when its header was read
            raise ModelError(
                f"{self.path.name} ends inside tensor {self.name!r}", field=self.name, hint="download the file again"
            )
        return np.frombuffer(data, np.uint8).reshape(count, self.row_bytes)

    def chunks(self, n_bytes: int = 1 << 22) -> Iterator[npt.NDArray[np.uint8]]:
        """All rows, about `n_bytes` at a time. Raises ModelError."""
        step = max(1, n_bytes // max(1, self.row_bytes))
        for first in range(0, self.n_rows, step):
            yield self.rows(first, min(first + step, self.n_rows))

    def numbers(self) -> npt.NDArray[np.float32]:
        """The whole tensor as float32, in its shape. Raises ModelError."""
        return self.dequantized(self.rows(0, self.n_rows)).reshape(self.shape)

    def dequantized(self, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Stored rows `[n, row_bytes]` as float32. Raises ModelError for a type that the package gguf cannot read."""
        try:
            return quants.dequantize(rows, self.type)
        except NotImplementedError:
            raise ModelError(
                f"{self.path.name}: the tensor {self.name!r} is {self.type.name}, whose numbers the package gguf "
                "cannot read",
                field=self.name,
                hint="give a quantization where this tensor is of another type, or try 'pip install -U gguf'",
            ) from None


u32 = partial(Value, GGUFValueType.UINT32)
f32 = partial(Value, GGUFValueType.FLOAT32)
boolean = partial(Value, GGUFValueType.BOOL)
string = partial(Value, GGUFValueType.STRING)


def array(item: GGUFValueType, data: Sequence[Any]) -> Value:
    return Value(GGUFValueType.ARRAY, data, item)


def pack_string(data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return struct.pack("<Q", len(raw)) + raw


def pack_metadata(metadata: Mapping[str, Value]) -> bytes:
    """The pairs as in a GGUF file, without their count."""
    parts = []
    for key, value in metadata.items():
        parts += [pack_string(key), struct.pack("<I", value.type)]
        items, kind = [value.data], value.type
        if value.item is not None:
            items, kind = value.data, value.item
            parts.append(struct.pack("<IQ", kind, len(items)))
        if kind == GGUFValueType.STRING:
            parts += map(pack_string, items)
        else:
            parts.append(struct.pack(f"<{len(items)}{_FORMATS[kind]}", *items))
    return b"".join(parts)


def read_metadata(path: Path) -> dict[str, Value]:
    """All keys of the GGUF file `path`. Raises ModelError; `field` is the key to blame, if any."""
    with _open(path) as data:
        return _Cursor(path, data).metadata()


def read_header(path: Path) -> tuple[dict[str, Value], dict[str, StoredGgufTensor]]:
    """All keys and tensors of the file `path`, which may be a part of a split model. Raises ModelError; `field` is the
    key or tensor to blame."""
    with _open(path) as data:
        cursor = _Cursor(path, data)
        metadata = cursor.metadata()
        return metadata, cursor.tensors(metadata)


def read_model(path: Path) -> tuple[dict[str, Value], dict[str, StoredGgufTensor]]:
    """All keys and tensors of a model; `path` is its first part if it is split. Keys about the layout of files
    (alignment, parts) are left out, so that the result can be written as one file. Raises ModelError, also if a part is
    missing, belongs to another model or repeats a tensor."""
    metadata, tensors = read_header(path)
    n_parts = _split_number(path, metadata, "split.count", 1)
    paths = part_paths(path)
    if n_parts > 1 and (_split_number(path, metadata, "split.no") != 0 or len(paths) != n_parts):
        raise ModelError(
            f"{path.name} is not the first of {n_parts} parts by its name or its keys",
            field="split.count",
            hint=f"give the first one, whose name ends in -00001-of-{n_parts:05}.gguf",
        )
    for index, part in enumerate(paths[1:n_parts], 1):
        keys, found = read_header(part)
        if _split_number(part, keys, "split.no") != index:
            raise ModelError(f"{part.name} is not part {index + 1} by its key 'split.no'", field="split.no")
        if twice := sorted(found.keys() & tensors.keys()):
            raise ModelError(f"{part.name}: the tensor {twice[0]!r} is in an earlier part too", field=twice[0])
        tensors |= found
    expected = _split_number(path, metadata, "split.tensors.count", len(tensors)) if n_parts > 1 else len(tensors)
    if expected != len(tensors):
        raise ModelError(
            f"the parts of {path.name} have {len(tensors)} tensors, not {expected}", field="split.tensors.count"
        )
    return {key: value for key, value in metadata.items() if key not in _LAYOUT}, tensors


def _split_number(path: Path, metadata: Mapping[str, Value], key: str, default: int = -1) -> int:
    number = metadata[key].data if key in metadata else default
    if type(number) is not int:
        raise ModelError(f"{path.name}: the key {key!r} is not a whole number", field=key)
    return number


def alignment_of(metadata: Mapping[str, Value]) -> int:
    """The alignment in bytes of tensor data in a file with these keys."""
    return int(metadata.get("general.alignment", u32(GGUF_DEFAULT_ALIGNMENT)).data)


@contextmanager
def _open(path: Path) -> Iterator[mmap.mmap]:
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise ModelError(f"{path.name} is not a GGUF file", hint="give a .gguf file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield data
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error


class _Cursor:
    """A position in a GGUF file. Reads past the end raise ModelError."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = 4
        self._key: str | None = None
        self._n_tensors = 0

    def metadata(self) -> dict[str, Value]:
        version: int = self._scalar("I")
        if version not in (2, 3):
            raise self._bad(f"it has GGUF version {version}, only little-endian versions 2 and 3 can be read")
        self._n_tensors = self._scalar("Q")
        result: dict[str, Value] = {}
        for _ in range(self._scalar("Q")):
            self._key = self._name("key", _MAX_KEY_LENGTH)
            if self._key in result:
                raise self._bad(f"the key {self._key!r} is listed twice")
            result[self._key] = self._value()
        return result

    def tensors(self, metadata: Mapping[str, Value]) -> dict[str, StoredGgufTensor]:
        """The table after the metadata, checked: the data has its order, without gaps except for padding, as
        ggml/src/gguf.cpp requires, and all of it is inside the file."""
        alignment = self._alignment(metadata)
        found: dict[str, StoredGgufTensor] = {}
        for _ in range(self._n_tensors):
            tensor = self._tensor()
            if tensor.name in found:
                raise self._bad(f"the tensor {tensor.name!r} is listed twice")
            found[tensor.name] = tensor
        start, expected = -(-self._at // alignment) * alignment, 0
        for tensor in found.values():
            self._key = tensor.name
            if tensor.offset != expected:
                raise self._bad(
                    f"the tensor {tensor.name!r} lies at offset {tensor.offset} of the data, expected {expected}"
                )
            if start + expected + tensor.n_bytes > len(self._data):
                raise self._bad(f"it ends before the data of the tensor {tensor.name!r} does")
            expected += -(-tensor.n_bytes // alignment) * alignment
        return {name: replace(tensor, offset=start + tensor.offset) for name, tensor in found.items()}

    def _alignment(self, metadata: Mapping[str, Value]) -> int:
        value = metadata.get("general.alignment", u32(GGUF_DEFAULT_ALIGNMENT))
        size = value.data if value.type == GGUFValueType.UINT32 else 0
        if not _MIN_ALIGNMENT <= size <= _MAX_ALIGNMENT or size & (size - 1):
            self._key = "general.alignment"
            raise self._bad(
                f"the key {self._key!r} must be a u32 power of two from {_MIN_ALIGNMENT} to {_MAX_ALIGNMENT}"
            )
        return int(size)

    def _tensor(self) -> StoredGgufTensor:
        self._key = self._name("tensor", _MAX_TENSOR_NAME)
        n_dims: int = self._scalar("I")
        if not 1 <= n_dims <= 4:
            raise self._bad(f"the tensor {self._key!r} has {n_dims} dimensions")
        shape = tuple(reversed([self._scalar("Q") for _ in range(n_dims)]))
        number, offset = self._scalar("I"), self._scalar("Q")
        try:
            kind = GGMLQuantizationType(number)
        except ValueError:
            raise ModelError(
                f"{self._path.name}: the tensor {self._key!r} has type {number}, which the package gguf does not know",
                field=self._key,
                hint="pip install -U gguf; if the newest one does not know it either, the file is damaged or of a type "
                "that cannot be read here",
            ) from None
        if 0 in shape or shape[-1] % GGML_QUANT_SIZES[kind][0]:
            raise self._bad(f"the tensor {self._key!r} has shape {list(shape)}, which {kind.name} cannot have")
        return StoredGgufTensor(self._path, self._key, shape, kind, offset)

    def _bad(self, what: str) -> ModelError:
        return ModelError(f"{self._path.name} is damaged: {what}", field=self._key, hint="download the file again")

    def _take(self, count: int) -> int:
        at = self._at
        if count > len(self._data) - at:
            raise self._bad("it ends inside its header" + (f", at the key {self._key!r}" if self._key else ""))
        self._at = at + count
        return at

    def _scalar(self, form: str) -> Any:
        return struct.unpack_from("<" + form, self._data, self._take(struct.calcsize("<" + form)))[0]

    def _string(self, limit: int = _MAX_STRING_LENGTH) -> bytes:
        length: int = self._scalar("Q")
        if length > limit:
            after = f" at or after {self._key!r}" if self._key else ""
            raise self._bad(f"a text{after} is {length} bytes long, at most {limit} are allowed")
        at = self._take(length)
        return self._data[at : at + length]

    def _name(self, of: str, limit: int) -> str:
        """The name of the next key or tensor."""
        try:
            name = self._string(limit).decode()
        except UnicodeDecodeError:
            raise self._bad(f"the name of the {of} after {self._key!r} is not UTF-8") from None
        if not name or "\0" in name:
            raise self._bad(f"the name of the {of} after {self._key!r} is empty or has a zero byte")
        return name

    def _type(self) -> GGUFValueType:
        number: int = self._scalar("I")
        try:
            return GGUFValueType(number)
        except ValueError:
            raise self._bad(f"the key {self._key!r} has the unknown type {number}") from None

    def _value(self) -> Value:
        kind = self._type()
        if kind == GGUFValueType.STRING:
            return Value(kind, self._string())
        if kind != GGUFValueType.ARRAY:
            return Value(kind, self._scalar(_FORMATS[kind]))
        item = self._type()
        count: int = self._scalar("Q")
        if item == GGUFValueType.STRING:
            if count > _MAX_ITEMS or count * 8 > len(self._data):  # a string takes at least its length
                raise self._bad(f"the key {self._key!r} claims {count} strings")
            return Value(kind, [self._string() for _ in range(count)], item)
        if item == GGUFValueType.ARRAY:
            raise self._bad(f"the key {self._key!r} is an array of arrays")
        if count > _MAX_ITEMS:
            raise self._bad(f"the key {self._key!r} claims {count} numbers")
        at = self._take(count * struct.calcsize("<" + _FORMATS[item]))
        return Value(kind, struct.unpack_from(f"<{count}{_FORMATS[item]}", self._data, at), item)
