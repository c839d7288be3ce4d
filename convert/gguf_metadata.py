"""The key-value section of a GGUF file, read strictly, with little memory, and written back as it was.

`gguf.GGUFReader` keeps several numpy arrays per array element: for a vocabulary of 250,000 tokens with as many merges
that is more memory than the rest of a conversion; and `gguf.GGUFWriter` refuses empty arrays. Here a string stays the
bytes that it is in the file, so copying a tokenizer loses nothing, and tensor data is never touched.
Source: docs/gguf.md in the ggml repository.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFValueType

from dflash_local.errors import ModelError

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


@dataclass(frozen=True)
class Value:
    """One GGUF value. Strings are `bytes` or `str`; for an array, `data` is a sequence and `item` the type of its
    elements."""

    type: GGUFValueType
    data: Any
    item: GGUFValueType | None = None


def u32(data: int) -> Value:
    return Value(GGUFValueType.UINT32, data)


def f32(data: float) -> Value:
    return Value(GGUFValueType.FLOAT32, data)


def boolean(data: bool) -> Value:
    return Value(GGUFValueType.BOOL, data)


def string(data: str) -> Value:
    return Value(GGUFValueType.STRING, data)


def array(item: GGUFValueType, data: Sequence[Any]) -> Value:
    return Value(GGUFValueType.ARRAY, data, item)


def pack_string(data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return struct.pack("<Q", len(raw)) + raw


def pack_metadata(metadata: Mapping[str, Value]) -> bytes:
    """The pairs as they stand in a GGUF file, without their count."""
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
    """Every key of the GGUF file `path`. Raises ModelError whose `field` is the key to blame, if one is."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            if head != b"GGUF":
                raise ModelError(f"{path.name} is not a GGUF file", hint="give the .gguf file of the target")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Cursor(path, data).metadata()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error


class _Cursor:
    """A place in a GGUF file. Reads past the end raise ModelError instead of returning less."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = 4
        self._key: str | None = None

    def metadata(self) -> dict[str, Value]:
        version: int = self._scalar("I")
        if version not in (2, 3):
            raise self._bad(f"it has GGUF version {version}, only little-endian versions 2 and 3 can be read")
        self._scalar("Q")  # number of tensors
        result: dict[str, Value] = {}
        for _ in range(self._scalar("Q")):
            try:
                self._key = self._string().decode()
            except UnicodeDecodeError:
                raise self._bad(f"the key after {self._key!r} is not UTF-8") from None
            if self._key in result:
                raise self._bad(f"the key {self._key!r} is listed twice")
            result[self._key] = self._value()
        return result

    def _bad(self, what: str) -> ModelError:
        return ModelError(f"{self._path.name} is damaged: {what}", field=self._key, hint="download the file again")

    def _take(self, count: int) -> int:
        at = self._at
        if count > len(self._data) - at:
            raise self._bad("it ends inside its metadata" + (f", at the key {self._key!r}" if self._key else ""))
        self._at = at + count
        return at

    def _scalar(self, form: str) -> Any:
        return struct.unpack_from("<" + form, self._data, self._take(struct.calcsize("<" + form)))[0]

    def _string(self) -> bytes:
        length: int = self._scalar("Q")
        at = self._take(length)
        return self._data[at : at + length]

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
            if count * 8 > len(self._data):  # a string takes at least its length
                raise self._bad(f"the key {self._key!r} claims {count} strings")
            return Value(kind, [self._string() for _ in range(count)], item)
        if item == GGUFValueType.ARRAY:
            raise self._bad(f"the key {self._key!r} is an array of arrays")
        at = self._take(count * struct.calcsize("<" + _FORMATS[item]))
        return Value(kind, struct.unpack_from(f"<{count}{_FORMATS[item]}", self._data, at), item)
