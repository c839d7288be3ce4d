"""Pool: the instances, how many are loaded at once, and who waits for one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dflash_local.errors import QueueFullError, again
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.router.instance import UNLOADED, Instance, Launch
from dflash_local.server.router.model import Model, canonical_name

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0

NO_ROOM = HTTPError(
    503, "model limit reached, and all models are busy: try again later", code="no_room", retry_after=RETRY_SECONDS
)
STOPPING = HTTPError(503, "the server stops", code="stopping", retry_after=RETRY_SECONDS)
UNLOADED_MEANWHILE = HTTPError(503, "the model was unloaded meanwhile", code="unloaded", retry_after=RETRY_SECONDS)

Changed = Callable[[Instance, str], None]


@dataclass
class Waiting:
    """Requests for one model that is not loaded, or drains: they wait for one load. `n_loads` of them only want it
    loaded."""

    n: int = 0
    n_loads: int = 0
    ready: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def fail(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # retrieved, as perhaps nobody waits any more


class Pool:
    """Instances by name, for one event loop. When a model is wanted and there is no room, the least recently used one
    that is idle is unloaded; if all are busy, the least recently used one drains: new requests for it wait in the
    queue. Models get their room in the order of their requests.

    Args:
        most: models loaded at once; 0: any number.
        max_waiting: requests that may wait for a model, and one in any case: it makes the model load.
        changed: called on every change of an instance.
    """

    def __init__(self, launch: Launch, most: int, max_waiting: int, changed: Changed) -> None:
        self.most = most
        self.n_evictions = 0
        self._launch, self._max_waiting, self._tell = launch, max_waiting, changed
        self._instances: dict[str, Instance] = {}
        self._leaving: set[Instance] = set()  # of models that are no longer known
        self._queue: dict[Instance, Waiting] = {}  # in the order of their arrival; none that is gone
        self._draining: set[Instance] = set()  # busy ones whose room is wanted
        self._keeping: set[asyncio.Task[None]] = set()
        self._n_made = 0
        self._closed = False

    def __iter__(self) -> Iterator[Instance]:
        return iter([*self._instances.values()])

    def find(self, name: str) -> Instance | None:
        """The instance of a model's name, or of one of its aliases. Quantizations may be in small letters, and Ollama's
        clients may add `:latest`."""
        for wanted in (name, canonical_name(name), name.removesuffix(":latest")):
            if found := self._instances.get(wanted):
                return found
            if found := next((instance for instance in self if wanted in instance.model.aliases), None):
                return found
        return None

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a model."""
        return sum(waiting.n for waiting in self._queue.values())

    def set_models(self, models: Mapping[str, Model]) -> None:
        """Replace the list of models. An instance whose model is gone or has other flags now is ended."""
        for name in self._instances.keys() - models.keys():
            instance = self._instances.pop(name)
            self._dismiss(instance)
            if instance.is_running:
                self._leaving.add(instance)
                instance.stop()
        for name, model in models.items():
            if name not in self._instances:
                self._n_made += 1
                self._instances[name] = Instance(model, self._launch, self._n_made, self._on_change)
                continue
            instance = self._instances[name]
            has_changed = instance.model.arguments != model.arguments
            instance.model = model
            if has_changed:
                instance.failure, instance.exit_code = None, 0
                instance.stop()

    @contextlib.asynccontextmanager
    async def use(self, instance: Instance, *, is_work: bool = True, waits: bool = True) -> AsyncIterator[None]:
        """Load an instance if it is not, and keep it loaded until the block ends. Only looking at it (not `is_work`)
        does not count as use; `waits`: while it drains.

        Raises:
            DFlashError: it cannot be loaded, its model is gone, or too many requests wait.
        """
        waiting = None
        try:
            # Who waited for it enters, also if it drains again by now, and a newcomer with them.
            while not instance.is_up or (
                waits and waiting is None and instance in self._draining and not self._is_expected(instance)
            ):
                if waiting is not None:  # it was loaded, and unloaded again at once
                    self._leave(instance, waiting)
                    waiting = None
                waiting = self._join(instance)
                await asyncio.shield(waiting.ready)
            instance.users += 1
        finally:
            if waiting is not None:
                self._leave(instance, waiting)
        if is_work and (waits or instance not in self._draining):  # else another one would drain instead
            instance.last_used = time.monotonic()
        instance.n_requests += 1
        try:
            yield
        finally:
            instance.users -= 1
            self._make_room()

    def load(self, instance: Instance) -> None:
        """Begin to load a model, once there is room. Raises HTTPError if none can be made."""
        if not self._n_free and self._victim() is None:
            raise again(NO_ROOM)
        waiting = self._join(instance, is_load=True)

        async def keep() -> None:
            try:
                with contextlib.suppress(Exception):
                    await asyncio.shield(waiting.ready)
            finally:
                waiting.n_loads -= 1
                self._leave(instance, waiting)

        task = asyncio.create_task(keep())
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    def unload(self, instance: Instance) -> None:
        """End a model; requests that wait for it fail."""
        self._dismiss(instance)
        instance.stop()

    async def close(self) -> None:
        self._closed = True
        for waiting in self._queue.values():
            waiting.fail(again(STOPPING))
        self._queue.clear()
        await asyncio.gather(*(instance.close() for instance in (*self, *self._leaving)))

    # ---- room ----

    def _join(self, instance: Instance, *, is_load: bool = False) -> Waiting:
        if self._closed:
            raise again(STOPPING)
        if self._instances.get(instance.model.name) is not instance:  # gone since the request found it
            raise again(UNLOADED_MEANWHILE)
        n_requests = sum(waiting.n - waiting.n_loads for waiting in self._queue.values())
        if not is_load and n_requests >= max(self._max_waiting, 1):
            raise QueueFullError("too many requests are waiting for a model", retry_after=RETRY_SECONDS)
        waiting = self._queue.get(instance)
        if waiting is None or waiting.ready.done():
            self._queue.pop(instance, None)  # the new ones come last
            waiting = self._queue[instance] = Waiting()
        waiting.n += 1
        waiting.n_loads += is_load
        self._make_room()
        return waiting

    def _leave(self, instance: Instance, waiting: Waiting) -> None:
        waiting.n -= 1
        if not waiting.n and self._queue.get(instance) is waiting:
            del self._queue[instance]
        self._make_room()

    def _dismiss(self, instance: Instance) -> None:
        """Fail the requests that wait for an instance."""
        if waiting := self._queue.pop(instance, None):
            waiting.fail(again(UNLOADED_MEANWHILE))

    @property
    def _n_free(self) -> float:
        """How many more may be loaded now."""
        if self.most <= 0:
            return float("inf")
        n_running = sum(instance.is_running for instance in (*self, *self._leaving))
        return max(self.most - n_running, 0)

    def _make_room(self) -> None:
        """Start what waits, as far as there is room; for the rest, end what is idle, and drain what is busy."""
        if self._closed:
            return
        n_needed = 0
        for instance, waiting in [*self._queue.items()]:
            if instance.status == UNLOADED and not waiting.ready.done():
                if n_needed or not self._n_free:
                    n_needed += 1
                else:
                    instance.start()
        n_coming = sum(instance.stopping for instance in (*self, *self._leaving))
        while n_coming < n_needed and (victim := self._victim()) is not None:
            log.info("%s makes room: it was used least recently", victim.model.name)
            self.n_evictions += 1
            victim.stop()
            n_coming += 1
        self._drain(n_needed - n_coming)

    def _victim(self) -> Instance | None:
        """The model to unload: idle, and no request is about to use it."""
        idle = [one for one in self if one.is_up and not one.users and not self._is_expected(one)]
        return min(idle, key=lambda one: one.last_used, default=None)

    def _is_expected(self, instance: Instance) -> bool:
        """Whether requests that waited for it are about to use it."""
        waiting = self._queue.get(instance)
        return waiting is not None and waiting.ready.done()

    def _drain(self, count: int) -> None:
        """Let the least recently used models, `count` of them, drain, and no others: else requests for these could for
        ever come before older ones for models that are not loaded."""
        by_use = sorted((one for one in self if one.is_up), key=lambda one: one.last_used)
        before, self._draining = self._draining, set(by_use[: max(count, 0)])
        for instance in before - self._draining:
            waiting = self._queue.get(instance)
            if waiting is not None and instance.is_up and not waiting.ready.done():
                waiting.ready.set_result(None)

    def _on_change(self, instance: Instance, event: str) -> None:
        waiting = self._queue.get(instance)
        if instance in self._leaving:
            if instance.status == UNLOADED:
                self._leaving.discard(instance)
        elif waiting is not None and not waiting.ready.done() and instance not in self._draining:
            if instance.is_up:
                waiting.ready.set_result(None)
            elif instance.status == UNLOADED and instance.failure is not None:
                del self._queue[instance]
                waiting.fail(instance.load_error())
        self._tell(instance, event)
        if instance.status == UNLOADED:
            self._make_room()


def event_data(instance: Instance) -> dict[str, Any]:
    """What an event says of an instance, in llama-server's terms."""
    data: dict[str, Any] = {"status": instance.status}
    if instance.status == UNLOADED:
        data["exit_code"] = instance.exit_code
    elif not instance.is_up:
        data["progress"] = round(instance.progress, 3)
    elif instance.info:
        data["info"] = instance.info
    return data
