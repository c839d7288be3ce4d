"""Sleep: an unused model is unloaded after a while, and loaded again for the next request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from dflash_local.server.connected import ended

log = logging.getLogger(__name__)

# Seconds between two looks at what is in use.
_LOOK = 1.0


class Sleep:
    """Whether something is awake, for one event loop.

    Args:
        seconds: idle time after which it sleeps; negative: never.
        free, load: unload the model, and load it again.

    Attributes:
        on_use: called whenever somebody comes, before they have it.
    """

    def __init__(
        self, seconds: float, free: Callable[[], Awaitable[None]], load: Callable[[], Awaitable[None]]
    ) -> None:
        self.is_sleeping = False
        self.on_use: Callable[[], None] = lambda: None
        self._seconds, self._free, self._load = seconds, free, load
        self._changing = asyncio.Lock()
        self._users = 0
        self._soon = False
        self._used = time.monotonic()
        self._watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """Keep it awake inside the block; it may fall asleep some time after the last one ends. Raises what `load`
        raises, and stays asleep then."""
        with self.held():
            if self.is_sleeping:
                # A task of its own: a waiting request may be cancelled, the loading may not.
                await asyncio.shield(asyncio.create_task(self._wake()))
            yield

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep it from falling asleep inside the block."""
        self.on_use()
        self._users += 1
        self._soon = False
        try:
            yield
        finally:
            self._users -= 1
            self._used = time.monotonic()

    def soon(self) -> bool:
        """Sleep as soon as its last user leaves, unless another one comes before. False if it never sleeps."""
        self._soon = self._seconds >= 0
        return self._soon

    @property
    def is_used(self) -> bool:
        """Whether somebody keeps it awake now."""
        return self._users > 0

    @property
    def idle_seconds(self) -> float:
        """For how long nobody has used it; 0 while somebody does."""
        return 0.0 if self._users else time.monotonic() - self._used

    @property
    def idle_left(self) -> float | None:
        """Seconds until it sleeps unless somebody comes; None if it never does."""
        return None if self._seconds < 0 else max(self._used + self._seconds - time.monotonic(), 0.0)

    def start(self) -> None:
        """Begin to watch; it is awake now."""
        self._used = time.monotonic()
        if self._seconds >= 0 and self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Stop watching, and end a change that is under way."""
        await ended(self._watching)
        async with self._changing:
            pass

    async def _wake(self) -> None:
        async with self._changing:
            if self.is_sleeping:
                start = time.monotonic()
                await self._load()
                self.is_sleeping = False
                self._used = time.monotonic()
                log.info("awake again after %.1f s", self._used - start)

    async def _watch(self) -> None:
        while True:
            left = 0.0 if self._soon else self._used + self._seconds - time.monotonic()
            if self.is_sleeping or self._users or left > 0:
                await asyncio.sleep(min(max(left, 0.1), _LOOK))
                continue
            async with self._changing:
                if not self._users:
                    self.is_sleeping = True
                    why = "a client asked for it" if self._soon else f"nobody asked for {self._seconds:g} s"
                    log.info("%s: the model sleeps", why)
                    try:
                        await self._free()
                    except Exception:  # it goes on to watch: the next request loads the model again
                        log.exception("the model could not be unloaded")
