"""Recording: what one stream has sent so far, for its client to return to."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

MAX_BYTES = 4 * 2**20  # most bytes kept of one stream, as they are stored: the newest
BLOCK_BYTES = 1 << 16  # so many are compressed together, in about 1 ms; events resemble each other


@dataclass(frozen=True)
class _Block:
    """A compressed part of a stream, and where it ends there."""

    end: int
    stored: bytes


class Recording:
    """The bytes of a stream by their offset, all but the newest ones compressed. One request writes it, any number of
    others read it."""

    def __init__(self, name: str, owner: int = 0) -> None:
        self.name = name
        self.key = owner, name  # the owner is the number of its client's API key; 0: there are no keys
        self.started_at = time.time()
        self.completed_at = 0.0  # 0: it still grows
        self.began = False  # the headers were sent
        self.total = 0  # bytes so far
        self.dropped = 0  # bytes at the beginning that are gone
        self.cancelled = asyncio.Event()
        self._blocks: deque[_Block] = deque()
        self._newest = bytearray()
        self._stored = 0  # bytes of all blocks
        self._changed = asyncio.Event()

    def begin(self) -> None:
        """The answer's headers have been sent."""
        self.began = True

    def append(self, chunk: bytes) -> None:
        """What the stream sends."""
        self._newest += chunk
        self.total += len(chunk)
        if len(self._newest) >= BLOCK_BYTES:
            self._compress()
        self._wake()

    def _compress(self) -> None:
        """Make a block of the newest bytes, in place of the oldest blocks if need be."""
        block = _Block(self.total, zlib.compress(self._newest, 1))
        self._newest.clear()
        self._blocks.append(block)
        self._stored += len(block.stored)
        while self._stored > MAX_BYTES:
            oldest = self._blocks.popleft()
            self._stored -= len(oldest.stored)
            self.dropped = oldest.end

    def finish(self) -> None:
        """Nothing more will come."""
        self.completed_at = self.completed_at or time.time()
        self._wake()

    def cancel(self) -> None:
        """Make its writer end as if the client had left."""
        self.cancelled.set()
        self.finish()

    async def read(self, start: int) -> AsyncIterator[bytes]:
        """The bytes from `start` on until the end, including those still to come.

        Raises:
            LookupError: they are no longer kept.
        """
        while True:
            changed = self._changed
            if start < self.dropped:
                raise LookupError(start)
            if start < self.total:
                piece = self._from(start)
                start += len(piece)
                yield piece
            elif self.completed_at:
                return
            else:
                await changed.wait()

    def _from(self, start: int) -> bytes:
        """The bytes from `start` on that are stored together."""
        for block in self._blocks:
            if start < block.end:
                return zlib.decompress(block.stored)[start - block.end :]
        return bytes(self._newest[start - self.total :])

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
