"""BlobPart: what is there of a blob that is being downloaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import BinaryIO

from dflash_local.hub.cache import HubFile

_CHUNK = 1 << 20


class BlobPart:
    """The first bytes of `file` in `out`, a file that is open for reading and appending, with their hash. `report` is
    called with the number of bytes whenever there are more.

    Attributes:
        done: the number of bytes.
    """

    def __init__(self, out: BinaryIO, file: HubFile, report: Callable[[int], None]) -> None:
        self._out, self._report = out, report
        # LFS names a file by its sha256, git by the sha1 of it and of its length.
        self._hash = hashlib.sha256() if len(file.oid) == 64 else hashlib.sha1(b"blob %d\0" % (file.size or 0))
        out.seek(0)
        while chunk := out.read(_CHUNK):
            self._hash.update(chunk)
        self.done = out.tell()

    def take(self, chunk: bytes) -> None:
        """Append a chunk. Raises OSError."""
        self._out.write(chunk)
        self._hash.update(chunk)
        self.done += len(chunk)
        self._report(self.done)

    @property
    def oid(self) -> str:
        """The hash of all bytes, of the kind that names the blob."""
        return self._hash.hexdigest()
