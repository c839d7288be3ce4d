"""The records of a zip archive that stores them as they are: where each lies in the file.

Python's `zipfile` reads a list of contents of any size into memory, and lets records be compressed, encrypted or laid
over each other. An archive of `torch.save` is none of this, so here all of it is an error.
Source: PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (list of contents), 4.3.14 to 4.3.16 (its end).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_CONTENTS_BYTES = 8_000_000
_END, _END64, _LOCATOR64, _ENTRY, _LOCAL = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x01\x02", b"PK\x03\x04"
_ZIP64 = 0x0001  # extra field with the sizes that do not fit 32 bits
_ENCRYPTED = 0x0001


class ZipError(Exception):
    """What is wrong with an archive; who catches it knows the file's name."""


@dataclass(frozen=True)
class Record:
    """A record's place in the file, in bytes."""

    offset: int
    size: int


def read_records(file: BinaryIO, size: int) -> dict[str, Record]:
    """Every record of the archive `file` of `size` bytes, by name. Raises ZipError."""
    try:
        at, length = _contents(file, size)
        records: dict[str, Record] = {}
        for name, header, n_bytes in _entries(_read(file, at, length, size)):
            if name in records:
                raise ZipError(f"the record {name!r} is listed twice")
            records[name] = Record(_data_offset(file, header, size), n_bytes)
    except struct.error:
        raise ZipError("it is truncated, or no zip archive") from None
    end = 0
    for name, record in sorted(records.items(), key=lambda item: item[1].offset):
        if record.offset < end:
            raise ZipError(f"the record {name!r} begins inside another")
        end = record.offset + record.size
        if end > at:
            raise ZipError(f"the record {name!r} is truncated")
    return records


def _contents(file: BinaryIO, size: int) -> tuple[int, int]:
    """Offset and size of the list of contents, which the end of the file tells."""
    tail = _read(file, max(0, size - 42), min(size, 42), size)  # the last two records, without comments
    if tail[-22:-18] != _END:
        raise ZipError("it is truncated, or no zip archive")
    length, offset = struct.unpack("<II", tail[-10:-2])
    if tail[-42:-38] == _LOCATOR64:
        (at,) = struct.unpack("<Q", tail[-34:-26])
        end = _read(file, at, 56, size)
        if end[:4] != _END64:
            raise ZipError("its end is damaged")
        length, offset = struct.unpack("<QQ", end[40:])
    if length > MAX_CONTENTS_BYTES:
        raise ZipError(f"its list of contents takes {length} bytes, {MAX_CONTENTS_BYTES} are allowed")
    return offset, length


def _read(file: BinaryIO, at: int, count: int, size: int) -> bytes:
    if at + count > size:
        raise ZipError("it is truncated, or no zip archive")
    file.seek(at)
    return file.read(count)


def _entries(contents: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, offset of the local header, and size of each record in the list of contents."""
    at = 0
    while at < len(contents):
        head = struct.unpack_from("<4s4xHH8xIIHHH8xI", contents, at)
        signature, flags, method, packed, n_bytes, n_name, n_extra, n_comment, header = head
        if signature != _ENTRY:
            raise ZipError("its list of contents is damaged")
        name = contents[at + 46 : at + 46 + n_name].decode(errors="replace")
        extra = contents[at + 46 + n_name : at + 46 + n_name + n_extra]
        at += 46 + n_name + n_extra + n_comment
        n_bytes, packed, header = _wide(extra, n_bytes, packed, header)
        if method or packed != n_bytes:
            raise ZipError(f"the record {name!r} is compressed")
        if flags & _ENCRYPTED:
            raise ZipError(f"the record {name!r} is encrypted")
        yield name, header, n_bytes


def _wide(extra: bytes, *narrow: int) -> Iterator[int]:
    """`narrow`, in the order of the format, with the 64-bit numbers of an extra field for those that do not fit."""
    wide: list[int] = []
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == _ZIP64:
            wide += struct.unpack_from(f"<{length // 8}Q", extra, at + 4)
        at += 4 + length
    for number in narrow:
        if number == 0xFFFFFFFF and not wide:
            raise ZipError("its list of contents is damaged")
        yield wide.pop(0) if number == 0xFFFFFFFF else number


def _data_offset(file: BinaryIO, header: int, size: int) -> int:
    """Where a record's bytes begin, after its local header."""
    signature, n_name, n_extra = struct.unpack("<4s22xHH", _read(file, header, 30, size))
    if signature != _LOCAL:
        raise ZipError("its list of contents is damaged")
    return header + 30 + int(n_name) + int(n_extra)
