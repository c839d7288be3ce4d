"""The places of the records in an uncompressed zip archive.

Python's `zipfile` reads a list of contents of any size into memory, and accepts records that are compressed, encrypted
or overlap. Archives of `torch.save` need none of this, so here it is an error, and no record is unpacked.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

MAX_CONTENTS_BYTES = 8_000_000
_ENCRYPTED = 0x0001


class ZipError(Exception):
    """A bad archive; the caller adds the file's name."""


@dataclass(frozen=True)
class Record:
    """A record's place in the file, in bytes."""

    offset: int
    size: int


def read_records(path: Path) -> dict[str, Record]:
    """All records of the archive `path`, by name. Raises ZipError, and OSError if it cannot be read."""
    try:
        with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
            records: dict[str, Record] = {}
            for info in archive.infolist():
                if info.filename in records:
                    raise ZipError(f"the record {info.filename!r} is listed twice")
                records[info.filename] = _record(archive, info, file)
            _check_places(records, archive.start_dir)
            return records
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, OverflowError, struct.error) as error:
        raise ZipError(f"it is truncated, or no zip archive: {error}") from None


class _Bounded(io.FileIO):
    """A file that limits a read to the allowed size of a list of contents."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = os.fstat(self.fileno()).st_size - self.tell()
        size = left if size is None or size < 0 else min(size, left)
        if size > MAX_CONTENTS_BYTES:
            raise ZipError(f"its list of contents takes {size} bytes, {MAX_CONTENTS_BYTES} are allowed")
        return super().read(max(0, size))


def _record(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: io.FileIO) -> Record:
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise ZipError(f"the record {info.filename!r} is compressed")
    if info.flag_bits & _ENCRYPTED:
        raise ZipError(f"the record {info.filename!r} is encrypted")
    with archive.open(info):  # checks the record's own header and stops after it
        return Record(file.tell(), info.file_size)


def _check_places(records: dict[str, Record], contents: int) -> None:
    """Raise ZipError if records overlap, or reach into the list of contents, which begins at `contents`."""
    end = 0
    for name, record in sorted(records.items(), key=lambda item: item[1].offset):
        if record.offset < end:
            raise ZipError(f"the record {name!r} begins inside another")
        end = record.offset + record.size
        if end > contents:
            raise ZipError(f"the record {name!r} is truncated")
