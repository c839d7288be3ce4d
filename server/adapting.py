"""Adapting: lets a server's drafter learn while nobody asks, and stops that before a request runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from dflash_local.engine import Engine
from dflash_local.server.connected import ended
from dflash_local.server.engine_life import EngineLife, State

T = TypeVar("T")

_LOOK = 1.0  # seconds between two looks at what is in use
_IDLE = 30.0  # seconds without a request after which a round begins
_PAUSE = 2.0  # seconds without a request after which a stopped one goes on


class Adaptation(Protocol):
    """What learns (dflash_local/train/adaptation.py)."""

    is_on: bool
    has_new_drafter: bool

    @property
    def is_due(self) -> bool: ...

    @property
    def runs(self) -> bool: ...

    @property
    def has_ended(self) -> bool: ...

    def prepare(self, stop: Callable[[], bool]) -> bool: ...

    def start(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def finish(self) -> None: ...

    def hand_over(self, engine: Engine) -> None: ...

    def give_up(self, error: Exception) -> None: ...

    def close(self) -> None: ...


class Adapting:
    """When an adaptation does what, for one event loop: rounds begin, go on and end while nobody keeps the engine
    awake. The first who does stops them at once."""

    def __init__(self, adaptation: Adaptation, life: EngineLife) -> None:
        self._adaptation, self._life = adaptation, life
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._working = threading.Lock()  # threads go on when a task that waits for them is cancelled
        life.sleep.on_use = adaptation.pause

    def start(self) -> None:
        """Begin to look, once the engine is loaded."""
        if self._adaptation.is_on:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End what runs."""
        self._closing = True
        await ended(self._task)
        await self._in_thread(self._adaptation.close)

    async def _run(self) -> None:
        while self._adaptation.is_on or self._adaptation.has_new_drafter:
            await asyncio.sleep(_LOOK)
            try:
                await self._look()
            except Exception as error:  # whatever it is: requests do not need what learns here
                await self._in_thread(partial(self._adaptation.give_up, error))

    async def _look(self) -> None:
        adaptation, idle = self._adaptation, self._life.sleep.idle_seconds
        if adaptation.has_ended:
            if idle > 0:
                await self._in_thread(adaptation.finish)
        elif adaptation.runs:
            if idle >= _PAUSE:
                adaptation.resume()
        elif adaptation.has_new_drafter:
            await self._hand_over()
        elif idle >= _IDLE and adaptation.is_due:
            is_ready = await self._in_thread(lambda: adaptation.prepare(self._is_disturbed))
            if is_ready and not self._is_disturbed():
                adaptation.start()

    async def _hand_over(self) -> None:
        engine = self._life.engine
        if engine is not None and self._life.state is State.READY and not self._life.sleep.is_used:
            await self._in_thread(lambda: self._adaptation.hand_over(engine))

    def _is_disturbed(self) -> bool:
        return self._life.sleep.is_used or self._closing

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """The result of what may take long; no two at once."""

        def run() -> T:
            with self._working:
                return function()

        return await asyncio.to_thread(run)
