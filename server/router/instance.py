"""Instance: one model's process, from its start to its end, any number of times."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dflash_local.errors import DFlashError
from dflash_local.server.children.child import PATIENCE, Child, reason
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.router.model import Model
from dflash_local.server.shapes.router import Status
from dflash_local.server.sockets import UNIX_SUFFIX

log = logging.getLogger(__name__)

UNLOADED: Status = "unloaded"
LOADING: Status = "loading"
LOADED: Status = "loaded"
SLEEPING: Status = "sleeping"
# Seconds that an instance has to end its answers with an error, before it is killed.
LAST_WORDS = 3.0
# Lines of an instance's log that are kept to say why it ended, and how many of them are shown if none is an error.
KEPT_LINES, SHOWN_LINES = 40, 5
_LEVEL = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
# The router writes the instance's log, and gets its state through pipes.
_FLAGS = ("--no-log-timestamps", "--log-prefix", "--log-colors", "off", "--no-log-jsonl", "--parent-pipes")


@dataclass(frozen=True)
class Launch:
    """How instances are started: the command `serve`, its environment, and the folder for their sockets."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path


class Instance:
    """A model, and its process while it is loaded. `changed` is called on every change, with the name of the event.

    Attributes:
        status: one of UNLOADED, LOADING, LOADED, SLEEPING.
        stopping: it is being ended and takes no more requests.
        failure: why the last process ended by itself; `exit_code` is its status.
        users: requests that it answers now; `last_used` is when the last one began.
    """

    def __init__(self, model: Model, launch: Launch, number: int, changed: Callable[[Instance, str], None]) -> None:
        self.model = model
        self.status: Status = UNLOADED
        self.stopping = False
        self.progress = 0.0
        self.failure: str | None = None
        self.exit_code = 0
        self.users = 0
        self.last_used = 0.0
        self.n_loads = self.n_failures = self.n_requests = 0
        self.info: dict[str, Any] = {}
        self._launch, self._changed = launch, changed
        self._socket = launch.folder / f"{number}{UNIX_SUFFIX}"
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._child: Child | None = None
        self._running: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._client: httpx.AsyncClient | None = None

    @property
    def is_up(self) -> bool:
        """Whether it takes requests. One that sleeps does, and they wake it."""
        return self.status in (LOADED, SLEEPING) and not self.stopping

    @property
    def is_running(self) -> bool:
        """Whether it has a process."""
        return self.status != UNLOADED

    @property
    def command(self) -> list[str]:
        own = ("--host", str(self._socket), f"--alias={self.model.name}")  # which may begin with a dash
        return [*self._launch.command, *self.model.arguments, *own, *_FLAGS]

    @property
    def client(self) -> httpx.AsyncClient:
        """An HTTP client for its requests. Each opens a connection: the instance might just be closing a kept one."""
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            transport = httpx.AsyncHTTPTransport(uds=str(self._socket), limits=limits)
            self._client = httpx.AsyncClient(transport=transport, base_url="http://instance", timeout=None)
        return self._client

    # ---- life ----

    def start(self) -> None:
        """Begin to load it; it must be unloaded."""
        assert self.status == UNLOADED
        self._set(LOADING, "model_status")
        self.failure, self.exit_code, self.progress, self.info = None, 0, 0.0, {}
        self.last_used = time.monotonic()
        self.n_loads += 1
        self._lines.clear()
        self._hurry.clear()
        self._running = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Begin to end it: running answers have `stop_timeout` seconds, a load that is under way none."""
        if self.is_running and not self.stopping:
            self.stopping = True
            self._ending = asyncio.create_task(self._end())

    async def close(self) -> None:
        self.stop()
        self._hurry.set()
        if self._ending is not None:
            await self._ending

    async def _run(self) -> None:
        log.info("%s: loading", self.model.name)
        began = time.monotonic()
        try:
            self._child = await Child.start(self.command, env=self._launch.env, on_line=self._on_line)
        except OSError as error:
            self._ended(1, f"cannot start its process: {error}")
            return
        while frame := await self._child.receive():
            await self._hear(frame[0], began)
        status = await self._child.wait()
        self._child = None
        self._ended(status, f"its process ended ({reason(status)}): {' '.join(self._last_words())}")

    async def _hear(self, news: Mapping[str, Any], began: float) -> None:
        if news["state"] == LOADING:
            self.progress = news["progress"]
            self._set(self.status, "status_change")
        elif news["state"] == SLEEPING:
            self._set(SLEEPING, "status_change")
        elif news["state"] == LOADED:
            if self.status == LOADING:
                self.info = await self._facts()
                log.info("%s: loaded in %.1f s", self.model.name, time.monotonic() - began)
            self._set(LOADED, "status_change")

    async def _facts(self) -> dict[str, Any]:
        """Facts about its model."""
        with suppress(httpx.HTTPError, ValueError, LookupError):
            entries = (await self.client.get("/v1/models", timeout=PATIENCE)).json()["data"]
            return {name: value for name, value in entries[0].items() if name in ("meta", "architecture")}
        return {}

    def _ended(self, status: int, why: str) -> None:
        if not self.stopping:
            self.failure, self.exit_code = why, status or 1
            self.n_failures += 1
            log.error("%s: %s", self.model.name, why)
        else:
            log.info("%s: unloaded", self.model.name)
        self.stopping = False
        self._set(UNLOADED, "status_change")

    async def _end(self) -> None:
        running = self._running
        assert running is not None
        while self._child is None and not running.done():
            await asyncio.sleep(0.01)
        if child := self._child:
            child.send({"do": "stop"})
            if self.status != LOADING:
                await _first(running, self._hurry.wait(), self.model.stop_timeout)
            child.send({"do": "hurry"})
            await _first(running, None, LAST_WORDS)
            await child.end()
        await running

    def _set(self, status: Status, event: str) -> None:
        self.status = status
        self._changed(self, event)

    # ---- its log ----

    def _on_line(self, line: str) -> None:
        self._lines.append(line)
        level = _LEVEL.match(line)
        log.log(
            getattr(logging, level[1]) if level else logging.INFO,
            "[%s] %s",
            self.model.name,
            line[level.end() :] if level else line,
        )

    def _last_words(self) -> Iterator[str]:
        """The error that it ended with, or else its last lines."""
        lines = [*self._lines]
        errors = [index for index, line in enumerate(lines) if line.startswith("error: ")]
        for line in lines[errors[-1] :] if errors else lines[-SHOWN_LINES:]:
            yield line.removeprefix("error: ").strip()

    # ---- errors ----

    def load_error(self) -> DFlashError:
        """The error for its clients if it could not be loaded."""
        return HTTPError(500, f"the model {self.model.name!r} could not be loaded: {self.failure}", code="load_failed")

    def died(self) -> DFlashError:
        """The error for a client whose answer it did not finish."""
        return HTTPError(502, f"the model {self.model.name!r} did not answer: its process has ended", code="died")


async def _first(running: asyncio.Task[None], other: Awaitable[object] | None, seconds: float) -> None:
    """Wait for the task or the other one, for `seconds` at most."""
    tasks = [running, *([asyncio.ensure_future(other)] if other is not None else [])]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks[1:]:
        task.cancel()
