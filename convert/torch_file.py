"""A reader of `torch.save` files (`.bin`, `.pt`) without torch: tensors, and plain values beside them.

Such a file holds a pickle, which is a program that could do anything. Only instructions that a dictionary of tensors
needs are executed, and only the names of tensors, storages and ordered dictionaries are allowed (pickle_reader.py).
Tensors are located, not read; memory does not depend on the size of the file.
Source: torch/serialization.py (`_save`, `_legacy_save`) and torch/_utils.py (`_rebuild_tensor_v2`).
"""

from __future__ import annotations

import io
import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dflash_local.errors import ConvertError

from .pickle_reader import PickleError, read_pickle
from .safetensors_file import ITEM_BYTES, READABLE, StoredTensor
from .zip_records import Record, ZipError, read_records

MAX_PICKLE_BYTES = 2_000_000  # a tensor takes some 200 bytes
_MAX_DIMENSIONS = 8
_LEGACY_MAGIC, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C.to_bytes(10, "little"), 1001
_STORAGES = {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
             "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8",
             "ByteStorage": "U8", "BoolStorage": "BOOL"}  # fmt: skip
_HINT = "download the file again; if it is whole, ask its author for safetensors"


@dataclass(frozen=True)
class StridedTensor(StoredTensor):
    """A tensor whose rows are not contiguous: a view, such as a transpose. `strides` count elements.

    The file is mapped, so that only the pages with the rows are read."""

    strides: tuple[int, ...]

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        n_elements = 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        try:
            data = np.memmap(self.path, READABLE[self.dtype], "r", self.offset, (n_elements,))
        except (OSError, ValueError) as error:
            raise ConvertError(f"cannot read tensor {self.name!r} in {self.path.name}", field=self.name) from error
        places = np.unravel_index(np.arange(start, stop), self.shape[:-1] or (1,))
        first = np.zeros(stop - start, np.int64)
        for place, stride in zip(places, self.strides[:-1] or (0,), strict=True):
            first += place * stride
        return self.as_numbers(data[first[:, None] + np.arange(self.shape[-1]) * self.strides[-1]])


def read_torch_file(path: Path) -> dict[str, Any]:
    """The dictionary in the file `path`, saved by `torch.save` in either of its formats.

    A tensor is a `StoredTensor` with its key as the name: `rows(start, stop)` reads from the file. Other values are
    numbers, strings, None, and lists, tuples and dictionaries. Nothing from the file is executed, and at most
    MAX_PICKLE_BYTES and its list of contents are read. Raises ConvertError; `field` is the tensor to blame, or else the
    file's name.
    """

    def bad(what: str, field: str = path.name) -> ConvertError:
        return ConvertError(f"{path.name} cannot be read: {what}", field=field, hint=_HINT)

    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(4)
            value = _zipped(path, file) if head == b"PK\x03\x04" else _legacy(file, size)
    except OSError as error:
        raise ConvertError(f"cannot read {path.name}: {error.strerror}", field=path.name) from error
    except (PickleError, ZipError) as error:
        raise bad(str(error)) from None
    if not isinstance(value, dict):
        raise bad("it holds no dictionary")
    result: dict[str, Any] = {}
    for name, item in value.items():
        result[name] = item
        if isinstance(item, _Tensor):
            try:
                result[name] = item.stored(path, name)
            except PickleError as error:
                raise bad(f"tensor {name!r}: {error}", name) from None
    return result


def read_torch_tensors(path: Path) -> list[StoredTensor]:
    """The tensors of a state dictionary, by `read_torch_file(path)`. Raises ConvertError for other values."""
    values = read_torch_file(path)
    for name, value in values.items():
        if not isinstance(value, StoredTensor):
            raise ConvertError(
                f"{path.name}: {name!r} is a {type(value).__name__}, not a tensor",
                field=name,
                hint="save the model's state_dict() alone",
            )
    return list(values.values())


@dataclass(frozen=True)
class _Dtype:
    """The type that a class of storages means."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """`count` numbers of type `dtype` in a file, at `offset` bytes."""

    dtype: str
    count: int
    offset: int = 0


@dataclass(frozen=True)
class _Tensor:
    """The result of `_rebuild_tensor_v2`; `shape`, `strides` and `start` count elements."""

    storage: _Storage
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def rebuild(cls, arguments: Any) -> _Tensor:
        if not isinstance(arguments, tuple) or not 6 <= len(arguments) <= 7:
            raise PickleError("a tensor has the wrong number of arguments")
        storage, start, shape, strides, _, _, *metadata = arguments
        if not isinstance(storage, _Storage):
            raise PickleError("a tensor has no storage")
        if metadata and metadata[0]:
            raise PickleError("a tensor is a negated or conjugated view")
        if not _is_size(start) or not _are_sizes(shape) or not _are_sizes(strides) or len(shape) != len(strides):
            raise PickleError("the sizes, strides or offset of a tensor are not whole numbers")
        if len(shape) > _MAX_DIMENSIONS:
            raise PickleError(f"a tensor has {len(shape)} dimensions")
        return cls(storage, start, shape, strides)

    def stored(self, path: Path, name: str) -> StoredTensor:
        """This tensor as one of the file `path`, checked to lie inside its storage."""
        storage, n_elements = self.storage, math.prod(self.shape)
        end = self.start + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)) + 1
        # with stride 0, a small file could hold a huge tensor
        if n_elements and (end > storage.count or n_elements > storage.count):
            raise PickleError(
                f"its {list(self.shape)} elements with strides {list(self.strides)} from {self.start} on "
                f"exceed its storage of {storage.count}"
            )
        offset = storage.offset + (self.start * ITEM_BYTES[storage.dtype] if n_elements else 0)
        if n_elements and self.strides != _contiguous(self.shape, self.strides):
            return StridedTensor(path, name, storage.dtype, self.shape, offset, self.strides)
        return StoredTensor(path, name, storage.dtype, self.shape, offset)


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of contiguous rows. That of a dimension with one element is meaningless and stays."""
    result: list[int] = []
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        result.append(step if n > 1 else stride)
        step *= n
    return tuple(reversed(result))


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _are_sizes(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_size, value))


Storages = Callable[[str, str, int], _Storage]  # of a type, key and number of elements


def _value(stream: io.BytesIO, storages: Storages) -> Any:
    """The value of the next pickle in the stream."""

    def persistent(what: Any) -> _Storage:
        match what:
            case ("storage", _Dtype(dtype), str(key), str(_), int(count), *rest):
                if not _is_size(count) or any(part is not None for part in rest):
                    raise PickleError(f"storage {key!r} is a view or has no size")
                return storages(dtype, key, count)
        raise PickleError("it refers to something that is no storage")

    def ordered_dict(arguments: tuple[Any, ...]) -> dict[Any, Any]:
        if arguments:
            raise PickleError("an ordered dictionary has arguments")
        return {}

    names = {f"torch.{name}": _Dtype(dtype) for name, dtype in _STORAGES.items()}
    calls = {"torch._utils._rebuild_tensor_v2": _Tensor.rebuild, "collections.OrderedDict": ordered_dict}
    return read_pickle(stream, names | calls, persistent)


def _zipped(path: Path, file: BinaryIO) -> Any:
    """The value of a file since torch 1.6: a zip archive of NAME/data.pkl and, for each storage, NAME/data/KEY."""
    records = read_records(path)
    pickles = [name for name in records if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise PickleError(f"it is a zip archive with {len(pickles)} data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    order = records.get(folder + "byteorder")
    if order and _content(file, order) != b"little":
        raise PickleError("its numbers are not little-endian")

    def storage(dtype: str, key: str, count: int) -> _Storage:
        record = records.get(f"{folder}data/{key}")
        if record is None:
            raise PickleError(f"storage {key!r} is missing")
        if record.size != count * ITEM_BYTES[dtype]:
            raise PickleError(f"storage {key!r} has {record.size} bytes for {count} elements of {dtype}")
        return _Storage(dtype, count, record.offset)

    return _value(io.BytesIO(_content(file, records[pickles[0]])), storage)


def _content(file: BinaryIO, record: Record) -> bytes:
    if record.size > MAX_PICKLE_BYTES:
        raise PickleError(f"its description takes {record.size} bytes, {MAX_PICKLE_BYTES} are allowed")
    file.seek(record.offset)
    return file.read(record.size)


def _legacy(file: BinaryIO, size: int) -> Any:
    """The value of a file in the format before torch 1.6: pickles of a magic number, a version, facts of the machine,
    the value and the keys of its storages; then each storage, with its size first."""
    file.seek(0)
    stream = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    if _LEGACY_MAGIC not in stream.getvalue()[:64]:
        raise PickleError("it is not a file of torch.save")
    _value(stream, _no_storage)
    version, machine = _value(stream, _no_storage), _value(stream, _no_storage)
    if version != _LEGACY_PROTOCOL or not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise PickleError("its numbers are not little-endian")
    # the value precedes its storages: it is read once for their sizes, and again with their places
    start = stream.tell()
    wanted: dict[str, tuple[str, int]] = {}
    _value(stream, lambda dtype, key, count: _Storage(*wanted.setdefault(key, (dtype, count))))
    keys = _value(stream, _no_storage)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or sorted(keys) != sorted(wanted):
        raise PickleError("its list of storages is damaged")
    places: dict[tuple[str, str, int], _Storage] = {}
    at = stream.tell()
    for key in keys:
        dtype, count = wanted[key]
        file.seek(at)
        if file.read(8) != struct.pack("<Q", count) or at + 8 + count * ITEM_BYTES[dtype] > size:
            raise PickleError(f"storage {key!r} is truncated")
        places[key, dtype, count] = _Storage(dtype, count, at + 8)
        at += 8 + count * ITEM_BYTES[dtype]

    def storage(dtype: str, key: str, count: int) -> _Storage:
        if (key, dtype, count) not in places:
            raise PickleError(f"storage {key!r} is used with different types or sizes")
        return places[key, dtype, count]

    stream.seek(start)
    return _value(stream, storage)


def _no_storage(dtype: str, key: str, count: int) -> _Storage:
    raise PickleError("a storage stands where none can")
