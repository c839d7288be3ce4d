"""Recordings, by the names that their clients gave them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dflash_local.errors import RequestError
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.recordings.recording import Recording

HEADER = "X-Conversation-Id"
MAX_NAME = 512  # characters
MAX_KEPT = 32
TTL = 300.0  # seconds that a stream is kept after its end
VARIANT = "::"  # a name may be followed by this and a model


class Recordings:
    """One recording per name; when there is no room, the oldest finished ones go."""

    def __init__(self, ttl: float = TTL, most: int = MAX_KEPT) -> None:
        self._ttl, self._most = ttl, most
        self._kept: dict[str, Recording] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}  # of those that wait for their time to be over

    def begin(self, name: str) -> Recording:
        """Keep a new stream. One of the same name is cancelled.

        Raises:
            RequestError: the name is too long; HTTPError: 503, there are too many that still grow.
        """
        if len(name) > MAX_NAME:
            raise RequestError(f"{HEADER} must be at most {MAX_NAME} characters long", param=HEADER)
        self.remove(name)
        if len(self._kept) >= self._most:
            oldest = next((kept for kept in self._kept.values() if kept.completed_at), None)
            if oldest is None:
                raise HTTPError(
                    503,
                    f"{self._most} streams with an {HEADER} are being written: try again later",
                    code="too_many_recordings",
                    retry_after=2,
                )
            self.forget(oldest)
        recording = self._kept[name] = Recording(name)
        return recording

    def find(self, name: str) -> Recording | None:
        return self._kept.get(name)

    def known(self, names: Sequence[str]) -> list[Recording]:
        """The recordings of these names, and of each name's variants."""
        wanted = set(names)
        return [kept for name, kept in self._kept.items() if name in wanted or name.split(VARIANT)[0] in wanted]

    def remove(self, name: str) -> None:
        """Cancel and forget it, if there is one."""
        if recording := self._kept.get(name):
            self.forget(recording)
            recording.cancel()

    def forget(self, recording: Recording) -> None:
        """Stop keeping it; its readers may go on."""
        if self._keeps(recording):
            del self._kept[recording.name]
            if end := self._ends.pop(recording.name, None):
                end.cancel()  # or it would hold the recording, and all its bytes, until then

    def finish(self, recording: Recording) -> None:
        """End a recording, and keep it for a while."""
        recording.finish()
        if not recording.began:
            self.forget(recording)
        elif self._keeps(recording):
            self._ends[recording.name] = asyncio.get_running_loop().call_later(self._ttl, self.forget, recording)

    def _keeps(self, recording: Recording) -> bool:
        return self._kept.get(recording.name) is recording
