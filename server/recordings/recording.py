"""Recording: what one stream has sent so far, for its client to return to."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator

MAX_BYTES = 4 * 2**20  # most bytes kept of one stream: the newest


class Recording:
    """The bytes of a stream by their offset. One request writes it, any number of others read it."""

    def __init__(self, name: str, owner: int = 0) -> None:
        self.name = name
        self.key = owner, name  # the owner is the number of its client's API key; 0: there are no keys
        self.started_at = time.time()
        self.completed_at = 0.0  # 0: it still grows
        self.began = False  # the headers were sent
        self.total = 0  # bytes so far
        self.dropped = 0  # bytes at the beginning that are gone
        self.cancelled = asyncio.Event()
        self._chunks: deque[bytes] = deque()
        self._changed = asyncio.Event()

    def begin(self) -> None:
        """The answer's headers have been sent."""
        self.began = True

    def append(self, chunk: bytes) -> None:
        """What the stream sends."""
        self._chunks.append(chunk)
        self.total += len(chunk)
        while self.total - self.dropped > MAX_BYTES:
            self.dropped += len(self._chunks.popleft())
        self._wake()

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
        behind, parts = self.total - start, []
        for chunk in reversed(self._chunks):
            parts.append(chunk[-behind:])
            behind -= len(parts[-1])
            if not behind:
                break
        return b"".join(reversed(parts))

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
