"""LateRoutes: groups of routes that are imported when they are asked for, or once there is time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from dflash_local.process_memory import collect_as_usual, collect_rarely, keep_all

log = logging.getLogger(__name__)

PATIENCE = 60.0  # seconds for which a busy server is waited for
PAUSE = 1.0  # seconds after the start, which belong to the first answers, and between two looks whether some run
_SEEN = "dflash.routes_seen"  # in a scope: how many routes have refused the request


class LateRoutes:
    """What a router calls for a request that no route takes: the next group of routes is added, and the router looks
    again, until there is no group left. To import them all takes a fifth of the time until a server is ready.

    Groups are added to the end of the router's routes, so no other route may match their paths.
    """

    def __init__(self, router: Router) -> None:
        self._router, self._not_found = router, router.default
        self._groups: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        router.default = self

    def expect(self, *groups: Callable[[], None]) -> None:
        """Add the routes of these groups later, in this order; each is a function that imports and adds them, in any
        thread."""
        self._groups += groups

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = scope.get(_SEEN, 0)
        if self._groups and seen == len(self._router.routes):
            await asyncio.to_thread(self._add_next, seen)
        scope[_SEEN] = len(self._router.routes)
        looks_again = self._groups or scope[_SEEN] > seen
        await (self._router if looks_again else self._not_found)(scope, receive, send)

    def load(self) -> None:
        """Add all groups. Slow, and thread-safe."""
        while self._groups:
            self._add_next(len(self._router.routes))

    async def load_in_pauses(self, is_busy: Callable[[], bool]) -> None:
        """Add all groups before a request has to wait for them, but not while others would have to wait for an import,
        unless there is no end of these."""
        await asyncio.sleep(PAUSE)
        latest = time.monotonic() + PATIENCE
        try:
            while self._groups:
                if is_busy() and time.monotonic() < latest:
                    await asyncio.sleep(PAUSE)
                else:
                    await asyncio.to_thread(self._add_in_pause)
        except Exception:
            log.exception("some endpoints could not be added")

    def _add_in_pause(self) -> None:
        collect_rarely()
        try:
            self._add_next(len(self._router.routes))
        finally:
            if self._groups:
                collect_as_usual()
            else:
                keep_all()

    def _add_next(self, seen: int) -> None:
        """Add a group, unless another thread has done so since there were `seen` routes."""
        with self._lock:
            if self._groups and len(self._router.routes) == seen:
                self._groups[0]()
                self._groups.popleft()
