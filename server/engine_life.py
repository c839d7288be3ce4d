"""EngineLife: an engine inside a server, from its loading to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import Any

from dflash_local.engine import Engine
from dflash_local.errors import EngineDeadError, EngineLostError, again
from dflash_local.process_memory import give_back, keep_all
from dflash_local.server.banner import context_line
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.recovery import Recovery
from dflash_local.server.sleep import Sleep

log = logging.getLogger(__name__)

# Seconds that a server stays up after its engine died: waiting requests get their errors, health checks see it.
DEATH_GRACE = 10.0
# Seconds that a scrape waits for the end of the running step, since native counters are read between steps.
STATS_PATIENCE = 1.0
# Seconds between two checks whether an engine's RPC servers still answer.
RPC_WATCH = 5.0
# Loading progress is reported in steps of at least this share.
PROGRESS_STEP = 0.01

Loader = Callable[[Callable[[float], bool]], Engine]

NOT_AWAKE = HTTPError(503, "the model could not be loaded again after it slept: the server's log says why")


class State(str, Enum):
    """What became of the engine."""

    LOADING = "loading"
    READY = "ready"
    SLEEPING = "sleeping"  # unloaded; the next request loads it
    LOST = "lost"  # with an RPC server; it is loaded again once that is back
    DEAD = "dead"  # `failure` says why, and the server ends
    STOPPING = "stopping"


ENDS = (State.DEAD, State.STOPPING)  # no other state follows these


class EngineLife:
    """Loads an engine, unloads it while nobody asks, and loads it again: for the next request, or if it was lost.

    Args:
        load: makes the engine; None: there is none, and nothing to wait for.
        idle_seconds: time without a request after which it sleeps; negative: never.
        on_load: called with each engine that was loaded.
        stop: ends the server.

    Attributes:
        tell: called when it loads, sleeps and wakes.
        engine: while it sleeps or is lost, the closed one, which still has its facts.
    """

    def __init__(
        self, load: Loader | None, idle_seconds: float, *, on_load: Callable[[Engine], None], stop: Callable[[], None]
    ) -> None:
        self.state = State.READY if load is None else State.LOADING
        self.failure: Exception | None = None
        self.engine: Engine | None = None
        self.tell: Callable[[dict[str, Any]], object] = lambda _state: None
        self.progress = self._told = 0.0
        self.sleep = Sleep(idle_seconds, self._fall_asleep, self._wake)
        self.recovery = Recovery(self._free, self._load_again, self._die, self.sleep.held)
        self._load, self._on_load, self._stop = load, on_load, stop
        self._stats: Mapping[str, Any] = {}
        self._watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """Keep the engine, if there is one, loaded inside the block; it may fall asleep some time after the last one
        ends. Raises HTTPError if the engine is not available."""
        if self.recovery.refusal is not None:
            raise again(self.recovery.refusal)
        async with self.sleep.awake():
            yield

    async def stats(self) -> Mapping[str, Any]:
        """dflash_engine_stats; the last known ones if the running step takes long or the engine is not awake."""
        if self.state is State.READY and self.engine is not None:
            with suppress(asyncio.TimeoutError, EngineDeadError):
                future = asyncio.wrap_future(self.engine.stats_soon())
                self._stats = await asyncio.wait_for(future, STATS_PATIENCE)
        return self._stats

    async def load(self) -> None:
        """Load the engine. Raises what the loader raises."""
        assert self._load is not None
        engine = self.engine = await asyncio.to_thread(self._load, self._on_progress)
        self._enter(State.READY)
        loop = asyncio.get_running_loop()
        engine.ended.add_done_callback(lambda ended: loop.call_soon_threadsafe(self._on_end, ended.result()))
        self._on_load(engine)
        keep_all()
        log.info("context: %s", context_line(engine))
        self.sleep.start()
        if engine.options is not None and engine.options.rpc and self._watching is None:
            self._watching = asyncio.create_task(self._watch_rpc())

    def fail(self, cause: Exception) -> None:
        """The server cannot go on without what it loads."""
        self.state, self.failure = State.DEAD, cause

    def stop_loading(self) -> None:
        """A load that runs ends soon, and the engine's end is no failure any more."""
        self._enter(State.STOPPING)

    async def close(self) -> None:
        """End the engine, after `stop_loading`."""
        if self._watching is not None:
            self._watching.cancel()
        await self.recovery.stop()
        await self.sleep.stop()
        if self.engine is not None:
            await asyncio.to_thread(self.engine.close)

    def _enter(self, state: State) -> None:
        if self.state not in ENDS:
            self.state = state

    async def _watch_rpc(self) -> None:
        """Notice a lost RPC server even while no request runs."""
        while True:
            await asyncio.sleep(RPC_WATCH)
            if self.state is State.READY and self.engine is not None:
                self.engine.check_rpc()

    async def _fall_asleep(self) -> None:
        await self.stats()  # the last ones
        self._enter(State.SLEEPING)
        await self._free()

    async def _free(self) -> None:
        assert self.engine is not None
        await asyncio.to_thread(self.engine.close)
        give_back()
        self.tell({"state": "sleeping"})

    async def _wake(self) -> None:
        try:
            await self._load_again()
        except Exception:
            log.exception("the model could not be loaded again")
            raise again(NOT_AWAKE) from None

    async def _load_again(self) -> None:
        await self.load()
        self.tell({"state": "loaded"})

    def _on_progress(self, done: float) -> bool:
        if self.state is State.LOADING and done - self._told >= PROGRESS_STEP:
            self._told = done
            self.tell({"state": "loading", "progress": done})
        self.progress = done
        return self.state not in ENDS

    def _on_end(self, cause: EngineDeadError) -> None:
        if self.state is not State.READY:  # it was closed
            return
        if not isinstance(cause, EngineLostError):
            self._die(cause)
        elif not self.sleep.is_sleeping:  # else it is falling asleep, and loads again when it wakes
            self.state = State.LOST
            self.recovery.begin(cause)

    def _die(self, cause: Exception) -> None:
        self.fail(cause)
        log.error("%s; the server stops in %g s", cause, DEATH_GRACE)
        asyncio.get_running_loop().call_later(DEATH_GRACE, self._stop)
