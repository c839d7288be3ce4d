"""Service: the engine's life inside a server, from loading over serving to its end."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dflash_local.engine import Engine
from dflash_local.errors import EngineDeadError
from dflash_local.server.errors import LOADING
from dflash_local.server.fields.request import Defaults
from dflash_local.server.metrics import Metrics
from dflash_local.stats import EngineStats

log = logging.getLogger(__name__)

# Seconds that a server whose engine died stays up, so that all who wait get their answer and health checks see it.
DEATH_GRACE = 10.0
# Seconds that a scrape waits for the running step, between which the native counters are read.
STATS_PATIENCE = 1.0

Loader = Callable[[Callable[[float], bool]], Engine]


@dataclass(frozen=True)
class Settings:
    """What the command line decides about the HTTP side."""

    alias: str = "dflash-local"
    model_path: str = ""
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ("*",)
    defaults: Defaults = field(default_factory=Defaults)
    max_body: int = 64 * 2**20
    webui: bool = True
    slots_endpoint: bool = True
    strict_fields: bool = False


class Service:
    """Loads the engine in the background while the socket already answers; `stop` ends the server, `failure` says
    why."""

    def __init__(self, load: Loader, settings: Settings) -> None:
        self.settings = settings
        self.stop: Callable[[], None] = lambda: None
        self.failure: Exception | None = None
        self.progress = 0.0
        self._load = load
        self._engine: Engine | None = None
        self._metrics: Metrics | None = None
        self._stats = EngineStats()
        self._stopping = False
        self._loading: asyncio.Task[None] | None = None

    @property
    def engine(self) -> Engine:
        """The loaded engine.

        Raises:
            HTTPError: 503 while it loads; EngineDeadError once it is dead.
        """
        if self._engine is None:
            raise self.failure or LOADING
        return self._engine

    @property
    def metrics(self) -> Metrics:
        """The loaded engine's metrics."""
        if self._metrics is None:
            self._metrics = Metrics(self.engine)
        return self._metrics

    async def stats(self) -> EngineStats:
        """What the engine did and chose, as of now; as of the last look if the running step takes long or the engine is
        dead."""
        try:
            future = asyncio.wrap_future(self.engine.stats_soon())
            self._stats = EngineStats.of(await asyncio.wait_for(future, STATS_PATIENCE))
        except (asyncio.TimeoutError, EngineDeadError):
            pass
        return self._stats

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status and body of /health."""
        if self._engine is None and self.failure is None:
            return 503, {
                "error": {"message": LOADING.message, "type": LOADING.type, "param": None, "code": LOADING.code}
            } | {"progress": round(self.progress, 3)}
        if self.failure is not None:
            return 503, {
                "error": {
                    "message": str(self.failure),
                    "type": "unavailable_error",
                    "param": None,
                    "code": "engine_dead",
                }
            }
        return 200, {"status": "ok"}

    def start(self) -> None:
        """Begin to load, in the background."""
        self._loading = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop loading or serving."""
        self._stopping = True
        if self._loading is not None:
            await self._loading
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    async def _run(self) -> None:
        try:
            engine = await asyncio.to_thread(self._load, self._on_progress)
        except Exception as error:
            if not self._stopping:
                self.failure = error
                self.stop()
            return
        self._engine = engine
        loop = asyncio.get_running_loop()
        engine.ended.add_done_callback(lambda ended: loop.call_soon_threadsafe(self._on_end, ended.result()))
        # What is loaded stays: spare the collector, which holds the GIL, from walking it again and again.
        gc.collect()
        gc.freeze()
        log.info("ready: %s", summary(engine))

    def _on_progress(self, done: float) -> bool:
        self.progress = done
        return not self._stopping

    def _on_end(self, cause: EngineDeadError) -> None:
        if not self._stopping:
            self.failure = cause
            log.error("%s; the server stops in %g s", cause, DEATH_GRACE)
            asyncio.get_running_loop().call_later(DEATH_GRACE, self.stop)


def summary(engine: Engine) -> str:
    """One line about a loaded pair."""
    target, drafter = engine.info["target"], engine.info.get("drafter")
    pair = f"{target.get('description', target['arch'])} + {drafter['kind'] + ' drafter' if drafter else 'no drafter'}"
    if drafter and engine.info.get("no_tree"):
        pair += f" (chains: {engine.info['no_tree']})"
    return f"{pair}, {engine.n_slots} slot{'s' * (engine.n_slots > 1)} of {engine.n_ctx_slot} tokens"
