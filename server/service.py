"""Service: what the routes of a server ask of the engine and of the models beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from dflash_local.engine import Engine
from dflash_local.errors import again
from dflash_local.server.banner import pair_line
from dflash_local.server.engine_life import EngineLife, Loader, State
from dflash_local.server.http_errors import DEAD, LOADING, HTTPError, native_error, not_supported
from dflash_local.server.media_gate import MediaGate
from dflash_local.server.metrics import Metrics
from dflash_local.server.running_chats import RunningChats
from dflash_local.server.served import Served
from dflash_local.server.settings import Settings
from dflash_local.server.shapes.error import ErrorAnswer
from dflash_local.server.shapes.facts import Health

if TYPE_CHECKING:
    from dflash_local.server.adapting import Adapting
    from dflash_local.server.embeddings.embedding_process import EmbeddingProcess
    from dflash_local.server.embeddings.options import ModelOptions
    from dflash_local.server.infill import Infill

log = logging.getLogger(__name__)

# An embedding model's process yields to the engine's threads, which all wait for their slowest.
NICE = 5

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


class Service(Served):
    """Loads the engine in the background while the socket already answers. Without `load` there is no engine, only
    models for embeddings or scores.

    Attributes:
        beside: what runs beside the requests once everything is loaded, until the end at most.
        adapting: lets the drafter learn while nobody asks.
    """

    beside: Callable[[], Coroutine[Any, Any, None]] | None = None
    adapting: Adapting | None = None

    def __init__(self, load: Loader | None, settings: Settings) -> None:
        self.settings = settings
        self.stop: Callable[[], None] = lambda: None
        self.has_engine = load is not None
        self.life = EngineLife(load, settings.sleep_idle_seconds, on_load=self._on_load, stop=lambda: self.stop())
        self._loading: list[asyncio.Task[None]] = []
        self._beside: asyncio.Task[None] | None = None
        self._metrics: Metrics | None = None
        self.chats = RunningChats()
        self.media_gate = MediaGate()
        self.control_texts: dict[str, str] = {}
        self._embedder, self._reranker = self._process(settings.embedding), self._process(settings.rerank)
        self.processes = [process for process in (self._embedder, self._reranker) if process is not None]

    def _process(self, options: ModelOptions | None) -> EmbeddingProcess | None:
        """The process of a model beside the engine, if there is to be one."""
        if options is None:
            return None
        from dflash_local.server.embeddings.embedding_process import EmbeddingProcess

        nice = NICE if self.has_engine else 0
        return EmbeddingProcess(options, nice=nice, max_queue=self.settings.max_queue)

    @property
    def engine(self) -> Engine:
        """The loaded engine; while it sleeps, the closed one, which still has its facts.

        Raises:
            HTTPError: 501 if there is none, 503 while it loads; EngineDeadError once it is dead.
        """
        if not self.has_engine:
            raise again(NO_TEXT)
        if self.life.engine is None:
            raise again(self.failure or LOADING)
        return self.life.engine

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
            raise again(missing)
        if not process.facts:
            raise again(self.failure or LOADING)
        return process

    @property
    def metrics(self) -> Metrics:
        """The engine's counters. Raises HTTPError 503 while it loads."""
        if self._metrics is None:
            raise again(self.failure or LOADING)
        return self._metrics

    @property
    def infill(self) -> Infill:
        """Prompts with a gap for the engine. Raises HTTPError 501 if its model has no tokens for that."""
        from dflash_local.server.infill import Infill

        return Infill(self.engine, self.settings.n_batch, suffix_first=self.settings.spm_infill)

    @property
    def failure(self) -> Exception | None:
        """Why the server ends."""
        return self.life.failure

    def health(self) -> tuple[int, Health | ErrorAnswer]:
        """Status and body of /health."""
        if self.life.state is State.DEAD:  # the failure's message may hold paths, and anybody may ask for this
            return native_error(DEAD)
        if self.life.state is State.LOADING or not all(process.facts for process in self.processes):
            status, body = native_error(LOADING)
            return status, {**body, "progress": round(self.life.progress, 3)}
        if (refusal := self.life.recovery.refusal) is not None:
            return native_error(refusal)
        return 200, {"status": "ok"}

    def start(self) -> None:
        """Begin to load, in the background."""
        parts = [process.start() for process in self.processes]
        if self.has_engine:
            parts.append(self.life.load())
        loading = [asyncio.create_task(part) for part in parts]
        self._loading = [*loading, asyncio.create_task(self._run(loading))]

    async def close(self) -> None:
        """Stop loading or serving."""
        self.life.stop_loading()
        if self._beside is not None:
            self._beside.cancel()
        # At once: requests get their errors from the engine's end, and a training process takes seconds to end.
        await asyncio.gather(self._close_models(), *([] if self.adapting is None else [self.adapting.close()]))

    async def _close_models(self) -> None:
        await asyncio.gather(*(process.close() for process in self.processes))
        await asyncio.gather(*self._loading, return_exceptions=True)
        await self.life.close()

    async def _run(self, loading: list[asyncio.Task[None]]) -> None:
        try:
            await asyncio.gather(*loading)
        except Exception as error:
            if self.life.state is not State.STOPPING:
                self.life.fail(error)
                self.stop()
            return
        self.life.tell({"state": "loaded"})
        engine = [] if self.life.engine is None else [pair_line(self.life.engine)]
        for what in engine + [process.summary() for process in self.processes]:
            log.info("ready: %s", what)
        if self.adapting is not None:
            self.adapting.start()
        if self.beside is not None:
            self._beside = asyncio.create_task(self.beside())

    def _on_load(self, engine: Engine) -> None:
        self._metrics = Metrics(engine)
        self.control_texts = {name: _token_text(engine, name) for name in ("bos_token", "eos_token")}


def _token_text(engine: Engine, name: str) -> str:
    token = engine.info.get(name, -1)
    return engine.detokenize([token], special=True) if token >= 0 else ""
