"""Recordings, by the names that their clients gave them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import takewhile

from dflash_local.errors import RequestError
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.recordings.recording import Recording
from dflash_local.server.security.key_check import key_number

HEADER = "X-Conversation-Id"
MAX_NAME = 512  # characters
MAX_KEPT = 32
TTL = 300.0  # seconds that a stream is kept after its end
VARIANT = "::"  # a name may be followed by this and a model


class Recordings:
    """The newest recording of each name; an older one goes on until the newer one has begun. When there is no room, the
    oldest finished ones go. Each API key has names of its own: that of the request that runs counts."""

    def __init__(self, ttl: float = TTL, most: int = MAX_KEPT) -> None:
        self._ttl, self._most = ttl, most
        self._kept: list[Recording] = []  # in the order of their requests
        self._ends: dict[Recording, asyncio.TimerHandle] = {}  # of those that wait for their time to be over

    def begin(self, name: str) -> Recording:
        """Keep a new stream. It is found in place of one of the same name, which it cancels when it is opened.

        Raises:
            RequestError: the name is too long; HTTPError: 503, there are too many that still grow.
        """
        if len(name) > MAX_NAME:
            raise RequestError(f"{HEADER} must be at most {MAX_NAME} characters long", param=HEADER)
        recording = Recording(name, key_number.get())
        newest = self._newest()
        if recording.key not in newest and len(newest) >= self._most:
            self._forget_oldest(newest.values())
        self._kept.append(recording)
        return recording

    def _forget_oldest(self, recordings: Iterable[Recording]) -> None:
        """Of those that have ended."""
        oldest = next((kept for kept in recordings if kept.completed_at), None)
        if oldest is None:
            raise HTTPError(
                503,
                f"{self._most} streams with an {HEADER} are being written: try again later",
                code="too_many_recordings",
                retry_after=2,
            )
        self.forget(oldest)

    def open(self, recording: Recording) -> None:
        """Its headers are being sent: those of its name that came before it are cancelled. Until then it may be
        refused, and must not end what its client still reads."""
        for older in [*takewhile(lambda kept: kept is not recording, self._kept)]:
            if older.key == recording.key:
                self._cancel(older)
        recording.begin()

    def find(self, name: str) -> Recording | None:
        """The newest of this name."""
        return self._newest().get((key_number.get(), name))

    def known(self, names: Sequence[str]) -> list[Recording]:
        """The recordings of these names, and of each name's variants."""
        wanted, number = set(names), key_number.get()
        return [
            kept
            for (owner, name), kept in self._newest().items()
            if owner == number and (name in wanted or name.split(VARIANT)[0] in wanted)
        ]

    def remove(self, name: str) -> None:
        """Cancel and forget what has this name."""
        key = key_number.get(), name
        for recording in [kept for kept in self._kept if kept.key == key]:
            self._cancel(recording)

    def forget(self, recording: Recording) -> None:
        """Stop keeping it; its readers may go on."""
        if recording in self._kept:
            self._kept.remove(recording)
            if end := self._ends.pop(recording, None):
                end.cancel()  # or it would hold the recording, and all its bytes, until then

    def finish(self, recording: Recording) -> None:
        """End a recording, and keep it for a while."""
        recording.finish()
        if not recording.began:
            self.forget(recording)
        elif recording in self._kept:
            self._ends[recording] = asyncio.get_running_loop().call_later(self._ttl, self.forget, recording)

    def _newest(self) -> dict[tuple[int, str], Recording]:
        """The last one of each name."""
        return {kept.key: kept for kept in self._kept}

    def _cancel(self, recording: Recording) -> None:
        self.forget(recording)
        recording.cancel()
