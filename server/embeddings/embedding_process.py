"""EmbeddingProcess: the server's handle on a worker."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dflash_local import errors
from dflash_local.child_process import module_command
from dflash_local.errors import ComputeError, DFlashError, EngineDeadError, ModelError, QueueFullError
from dflash_local.native import check_embedding_gguf
from dflash_local.server.children import frames
from dflash_local.server.children.child import Child, reason
from dflash_local.server.embeddings.embedding_facts import EmbeddingFacts
from dflash_local.server.embeddings.options import ModelOptions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Embeddings:
    """One answer: each text's vector as JSON, and the number of tokens of all texts."""

    parts: list[bytes]
    n_tokens: int


@dataclass(frozen=True)
class Scores:
    """One answer: a score for each document, and the number of tokens of all pairs."""

    scores: list[float]
    n_tokens: int


class EmbeddingProcess:
    """A worker that is started when it is needed, and again if it died; for one event loop. One request is at work, and
    `max_queue` more may wait."""

    def __init__(self, options: ModelOptions, *, nice: int = 0, max_queue: int = 64) -> None:
        self.options = options
        self.facts: EmbeddingFacts = {}
        self.n_requests = 0
        self.n_tokens = 0
        self.n_passes = 0
        self._passes_of_worker = 0
        self._nice, self._max_queue = nice, max_queue
        self._process: Child | None = None
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._restarting: asyncio.Task[None] | None = None
        self._n_asking = 0
        self._pending: dict[int, asyncio.Future[frames.Frame]] = {}
        self._next = 0
        self._closed = False

    # ---- life ----

    @property
    def is_running(self) -> bool:
        """Whether the model is in memory."""
        return self._reader is not None

    async def start(self) -> None:
        """Load the model unless it is loaded.

        Raises:
            ModelError: the file is damaged, or is no embedding model.
        """
        async with self._starting:
            if self._closed:
                raise EngineDeadError("the server stops")
            if self._reader is None:
                await self._start()

    async def _start(self) -> None:
        await asyncio.to_thread(check_embedding_gguf, self.options.path)
        options = json.dumps({**asdict(self.options), "nice": self._nice})
        command = (*module_command("dflash_local.server.embeddings.worker"), options)
        process = self._process = await Child.start(command)
        try:
            if self._closed:  # before there was a process to end
                raise EngineDeadError("the server stops")
            frame = await process.receive()
            if frame is None:
                why = _why(await process.wait())
                raise (
                    EngineDeadError("the server stops")
                    if self._closed
                    else ModelError(f"{self.options.path}: {why}, while it was loaded")
                )
            if "error" in frame[0]:
                raise _error(frame[0]["error"])
        except BaseException:
            await process.end()
            raise
        self.facts, self._passes_of_worker = frame[0]["ready"], 0
        self._warn()
        self._reader = asyncio.create_task(self._read(process))

    def _warn(self) -> None:
        pooling = self.facts["pooling"]
        if pooling == "rank" and not self.facts["has_head"]:
            log.warning("%s has no head for scores: what /v1/rerank says of it means nothing", self.options.name)
        if pooling == "none":
            hint = "give --pooling mean, cls or last, whichever it was trained with"
            log.warning("%s does not pool, so /v1/embeddings refuses: %s", self.options.name, hint)

    async def stop(self) -> None:
        """Free the model; requests that wait fail. The next request loads it again."""
        process, self._process = self._process, None
        if process is not None:
            await process.end()
        if self._reader is not None:
            await self._reader

    async def close(self) -> None:
        """`stop`, for good."""
        self._closed = True
        await self.stop()
        if self._restarting is not None:
            await asyncio.gather(self._restarting, return_exceptions=True)

    async def _read(self, process: Child) -> None:
        while frame := await process.receive():
            future = self._pending.pop(frame[0]["id"], None)
            if future is not None and not future.done():
                future.set_result(frame)
        status = await process.wait()
        self._reader = None
        error: DFlashError = EngineDeadError("the server stops")
        if self._process is process:  # it ended by itself
            self._process = None
            error = ComputeError(_why(status))
            log.error("%s: %s; the next request starts it again", self.options.path, error)
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(error)

    def summary(self) -> str:
        """One line about the loaded model."""
        facts, kind = self.facts, "scores" if self.facts["pooling"] == "rank" else f"{self.facts['n_embd']} numbers"
        line = f"{self.options.name}: {facts['description']}, {kind} for texts of at most {facts['n_ctx']} tokens"
        return line + (f", {facts['pooling']} pooling" if facts["pooling"] != "rank" else "")

    # ---- requests ----

    @property
    def n_waiting(self) -> int:
        """Requests without an answer yet."""
        return self._n_asking

    async def embed(self, texts: Any, *, normalize: int, base64: bool, param: str) -> Embeddings:
        """The vectors of `texts` (texts.py) as JSON; `param` is the request's name for the texts.

        Raises:
            RequestError: a text is malformed, empty or too long.
            QueueFullError: too many requests wait.
            ComputeError: a pass failed, or the worker died.
        """
        header, data = await self._ask("embed", input=texts, normalize=normalize, base64=base64, param=param)
        parts, start = [], 0
        for size in header["sizes"]:
            parts.append(data[start : start + size])
            start += size
        return Embeddings(parts, self._count(header))

    async def rerank(self, query: str, documents: Sequence[str]) -> Scores:
        """How well each document answers the query. Raises what `embed` raises."""
        header, _ = await self._ask("rerank", query=query, documents=list(documents))
        return Scores([score if math.isfinite(score) else 0.0 for score in header["scores"]], self._count(header))

    async def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of the model's own vocabulary."""
        header, _ = await self._ask("tokenize", text=text, add_special=add_special, parse_special=parse_special)
        return list(header["ids"])

    def _count(self, header: dict[str, Any]) -> int:
        self.n_requests += 1
        self.n_tokens += header["tokens"]
        self.n_passes += header["passes"] - self._passes_of_worker
        self._passes_of_worker = header["passes"]
        return int(header["tokens"])

    async def _ask(self, kind: str, **message: Any) -> frames.Frame:
        if self._n_asking > self._max_queue:
            raise QueueFullError("too many requests for embeddings are waiting", retry_after=1.0)
        self._n_asking += 1  # while it starts, too: everybody waits for that
        try:
            return await self._answer(await self._running(), kind, message)
        finally:
            self._n_asking -= 1

    async def _running(self) -> Child:
        """The worker, started if it is not there."""
        if self._reader is None:
            if self._restarting is None or self._restarting.done():
                self._restarting = asyncio.create_task(self.start())
            await asyncio.shield(self._restarting)  # a client that leaves does not take it from the others
        if self._process is None:
            raise EngineDeadError("the server stops" if self._closed else "the embedding model's process ended")
        return self._process

    async def _answer(self, process: Child, kind: str, message: dict[str, Any]) -> frames.Frame:
        number, self._next = self._next, self._next + 1
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            process.send({"id": number, "do": kind, **message})
            await process.drain()
            header, data = await future
        except asyncio.CancelledError:
            if number in self._pending:
                process.send({"id": number, "do": "cancel"})
            raise
        finally:
            self._pending.pop(number, None)
        if "error" in header:
            raise _error(header["error"])
        return header, data


def _why(status: int) -> str:
    return f"the embedding model's process ended ({reason(status)}); the log has llama.cpp's reason"


def _error(message: dict[str, Any]) -> DFlashError:
    """The error of a worker's `error_message`."""
    kind = getattr(errors, message["kind"])
    more = {"param": message["param"]} if issubclass(kind, errors.RequestError) else {}
    error = kind(message["message"], hint=message["hint"], **more)
    assert isinstance(error, DFlashError)
    return error
