"""Service: the engine's life inside a server: loading, serving, its end."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from dflash_local.engine import Engine
from dflash_local.errors import EngineDeadError, EngineLostError
from dflash_local.server.answers.error import ErrorAnswer
from dflash_local.server.answers.facts import Health
from dflash_local.server.banner import context_line, pair_line
from dflash_local.server.embeddings.embedding_process import EmbeddingProcess
from dflash_local.server.http_errors import DEAD, LOADING, HTTPError, native_error, not_supported
from dflash_local.server.infill import Infill
from dflash_local.server.metrics import Metrics
from dflash_local.server.recovery import Recovery
from dflash_local.server.running_chats import RunningChats
from dflash_local.server.settings import Settings
from dflash_local.server.sleep import Sleep, give_back_memory
from dflash_local.stats import EngineStats

log = logging.getLogger(__name__)

# Seconds that a server stays up after its engine died: waiting requests get their errors, health checks see it.
DEATH_GRACE = 10.0
# Seconds that a scrape waits for the end of the running step, since native counters are read between steps.
STATS_PATIENCE = 1.0

# Seconds between two checks whether an engine's RPC servers still answer.
RPC_WATCH = 5.0

# Least progress of loading that is told.
PROGRESS_STEP = 0.01

# An embedding model's process yields to the engine's threads, which all wait for their slowest.
NICE = 5

Loader = Callable[[Callable[[float], bool]], Engine]

NO_TEXT = not_supported(
    "This server only gives embeddings and scores: start it with -m MODEL.gguf for text, and --embedding-model or "
    "--rerank-model beside it",
)
NO_EMBEDDINGS = not_supported(
    "This server does not support embeddings. Start it with `--embeddings`, or beside text with --embedding-model FILE",
)
NO_SCORES = not_supported(
    "This server does not support reranking. Start it with `--reranking`, or beside text with --rerank-model FILE",
)

NOT_AWAKE = HTTPError(503, "the model could not be loaded again after it slept: the server's log says why")


class Service:
    """Loads the engine in the background while the socket already answers. `stop` ends the server, `failure` says why.
    Without `load` there is no engine, only models for embeddings or scores."""

    def __init__(self, load: Loader | None, settings: Settings) -> None:
        self.settings = settings
        self.stop: Callable[[], None] = lambda: None
        self.tell: Callable[[dict[str, Any]], object] = lambda _state: None  # called when it loads, sleeps and wakes
        self.failure: Exception | None = None
        self.progress = self._told = 0.0
        self._load = load
        self._engine: Engine | None = None
        self._metrics: Metrics | None = None
        self._stats: Mapping[str, Any] = {}
        self._stopping = False
        self._loading: list[asyncio.Task[None]] = []
        self._ready = False
        self.sleep = Sleep(settings.sleep_idle_seconds, self._free_engine, self._reload_engine)
        self.recovery = Recovery(self._free_engine, self._recover_engine, self._die, self.sleep.held)
        self._watching: asyncio.Task[None] | None = None
        self._asleep: Engine | None = None  # closed; its facts stay
        self.chats = RunningChats()
        self.control_texts: dict[str, str] = {}
        nice = NICE if load is not None else 0
        self._embedder, self._reranker = (
            None if options is None else EmbeddingProcess(options, nice=nice)
            for options in (settings.embedding, settings.rerank)
        )
        self.processes = [process for process in (self._embedder, self._reranker) if process is not None]

    @property
    def engine(self) -> Engine:
        """The loaded engine; while it sleeps, the closed one, which still has its facts.

        Raises:
            HTTPError: 501 if there is none, 503 while it loads; EngineDeadError once it is dead.
        """
        if self._load is None:
            raise NO_TEXT
        if self._engine is None:
            raise self.failure or LOADING
        return self._engine

    @property
    def has_engine(self) -> bool:
        """Whether there is one to load."""
        return self._load is not None

    @property
    def embedder(self) -> EmbeddingProcess:
        """The embedding model, once it was loaded. Raises HTTPError like `engine`."""
        return self._known(self._embedder, NO_EMBEDDINGS)

    @property
    def reranker(self) -> EmbeddingProcess:
        """The reranking model, once it was loaded. Raises HTTPError like `engine`."""
        return self._known(self._reranker, NO_SCORES)

    def _known(self, process: EmbeddingProcess | None, missing: HTTPError) -> EmbeddingProcess:
        if process is None:
            raise missing
        if not process.facts:
            raise self.failure or LOADING
        return process

    @property
    def metrics(self) -> Metrics:
        if self._metrics is None:
            self._metrics = Metrics(self.engine)
        return self._metrics

    @property
    def infill(self) -> Infill:
        """Prompts with a gap for the engine. Raises HTTPError 501 if its model has no tokens for that."""
        return Infill(self.engine, self.settings.n_batch, suffix_first=self.settings.spm_infill)

    async def stats(self) -> EngineStats:
        """What the engine did and chose."""
        return EngineStats.of(await self.native_stats())

    async def native_stats(self) -> Mapping[str, Any]:
        """dflash_engine_stats; the last known ones if the running step takes long or the engine is not awake."""
        if self._engine is self._asleep is not None:
            return self._stats
        try:
            future = asyncio.wrap_future(self.engine.stats_soon())
            self._stats = await asyncio.wait_for(future, STATS_PATIENCE)
        except (asyncio.TimeoutError, EngineDeadError):
            pass
        return self._stats

    @property
    def state(self) -> Literal["ready", "sleeping", "lost", "dead"]:
        """The state of an engine that was loaded."""
        if self.failure is not None:
            return "dead"
        if self.recovery.refusal is not None:
            return "lost"
        return "sleeping" if self.sleep.is_sleeping else "ready"

    def health(self) -> tuple[int, Health | ErrorAnswer]:
        """Status and body of /health."""
        if not self._ready and self.failure is None:
            status, body = native_error(LOADING)
            return status, {**body, "progress": round(self.progress, 3)}
        if self.failure is not None:  # its message may hold paths, and anybody may ask for this
            return native_error(DEAD)
        if (refusal := self.recovery.refusal) is not None:
            return native_error(refusal)
        return 200, {"status": "ok"}

    @asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """Keep the engine, if there is one, loaded inside the block; it may fall asleep some time after the last one
        ends. Raises HTTPError if the engine is not available."""
        if self.recovery.refusal is not None:
            raise self.recovery.refusal
        async with self.sleep.awake():
            yield

    def start(self) -> None:
        """Begin to load, in the background."""
        parts = [process.start() for process in self.processes]
        if self._load is not None:
            parts.append(self._load_engine(self._load))
        loading = [asyncio.create_task(part) for part in parts]
        self._loading = [*loading, asyncio.create_task(self._run(loading))]

    def drain(self) -> None:
        """Expect no more requests; those that run end by themselves."""

    async def close(self) -> None:
        """Stop loading or serving."""
        self._stopping = True
        await asyncio.gather(*(process.close() for process in self.processes))
        await asyncio.gather(*self._loading, return_exceptions=True)
        if self._watching is not None:
            self._watching.cancel()
        await self.recovery.stop()
        await self.sleep.stop()
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    async def _run(self, loading: list[asyncio.Task[None]]) -> None:
        try:
            await asyncio.gather(*loading)
        except Exception as error:
            if not self._stopping:
                self.failure = error
                self.stop()
            return
        self._ready = True
        self.tell({"state": "loaded"})
        for what in self._summaries():
            log.info("ready: %s", what)

    async def _load_engine(self, load: Loader) -> None:
        engine = self._engine = await asyncio.to_thread(load, self._on_progress)
        loop = asyncio.get_running_loop()
        engine.ended.add_done_callback(lambda ended: loop.call_soon_threadsafe(self._on_end, engine, ended.result()))
        self._metrics = None
        self.control_texts = {name: _text(engine, name) for name in ("bos_token", "eos_token")}
        # Loaded objects stay: spare the collector, which holds the GIL, from walking them again and again.
        gc.collect()
        gc.freeze()
        log.info("context: %s", context_line(engine))
        self.sleep.start()
        if engine.options is not None and engine.options.rpc and self._watching is None:
            self._watching = asyncio.create_task(self._watch_rpc())

    async def _watch_rpc(self) -> None:
        """Notice a lost RPC server even while no request runs."""
        while True:
            await asyncio.sleep(RPC_WATCH)
            if self._engine is not self._asleep:
                self.engine.check_rpc()

    async def _free_engine(self) -> None:
        engine = self.engine
        _ = self.metrics, await self.stats()  # to keep its counts
        self._asleep = engine
        await asyncio.to_thread(engine.close)
        give_back_memory()
        self.tell({"state": "sleeping"})

    async def _reload_engine(self) -> None:
        try:
            await self._recover_engine()
        except Exception:
            log.exception("the model could not be loaded again")
            raise NOT_AWAKE from None

    async def _recover_engine(self) -> None:
        assert self._load is not None
        await self._load_engine(self._load)
        self._asleep = None
        self.tell({"state": "loaded"})

    def _summaries(self) -> list[str]:
        engine = [] if self._engine is None else [pair_line(self._engine)]
        return engine + [process.summary() for process in self.processes]

    def _on_progress(self, done: float) -> bool:
        if not self._ready and done - self._told >= PROGRESS_STEP:
            self._told = done
            self.tell({"state": "loading", "progress": done})
        self.progress = done
        return not self._stopping and self.failure is None

    def _on_end(self, engine: Engine, cause: EngineDeadError) -> None:
        if self._stopping or engine is self._asleep:
            return
        if isinstance(cause, EngineLostError):
            if not self.sleep.is_sleeping:  # else it is falling asleep, and loads again when it wakes
                self.recovery.begin(cause)
        else:
            self._die(cause)

    def _die(self, cause: Exception) -> None:
        self.failure = cause
        log.error("%s; the server stops in %g s", cause, DEATH_GRACE)
        asyncio.get_running_loop().call_later(DEATH_GRACE, self.stop)


def _text(engine: Engine, name: str) -> str:
    token = engine.info.get(name, -1)
    return engine.detokenize([token], special=True) if token >= 0 else ""
