"""Replica: the whole app with its engine in one of Ray Serve's processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

from starlette.types import Message

from dflash_local.errors import again
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.http_errors import HTTPError, error_response
from dflash_local.server.replicas.asked import REPLICA, Asked
from dflash_local.server.service import Service
from dflash_local.thread_priority import hand_over_gil_soon

log = logging.getLogger(__name__)

_LOOK = 0.05  # seconds between two checks whether the model is loaded


class Replica:
    """An app that was made here. It exists once its model is loaded; then Ray sends it requests.

    Args:
        make_app: makes the app, as for a server of its own.
        name: its name for clients; None: what Ray calls it.
    """

    async def __init__(self, make_app: Callable[[], DocumentedApp], name: str | None = None) -> None:  # type: ignore[misc]
        # Ray awaits it.
        hand_over_gil_soon()
        self._name = name or _ray_name()
        self._app = make_app()
        self._service: Service = self._app.state.service
        self._running: set[asyncio.Task[None]] = set()
        self._life = AsyncExitStack()
        await self._life.enter_async_context(self._app.router.lifespan_context(self._app))
        while self._service.health()[0] != 200:
            if self._service.failure is not None:
                await self.close()
                raise again(self._service.failure)
            await asyncio.sleep(_LOOK)

    async def answer(self, asked: Asked) -> AsyncIterator[list[Message]]:
        """What the app sends, as it comes. The first list is empty: the replica has begun. When nobody listens any
        more, the app sees its client leave."""
        yield []
        sent: asyncio.Queue[Message | None] = asyncio.Queue()
        left = asyncio.Event()
        task = asyncio.create_task(self._run(asked, sent, left))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _task: sent.put_nowait(None))
        try:
            while (message := await sent.get()) is not None:
                messages, ended = [message], False
                while not (ended or sent.empty()):
                    if (more := sent.get_nowait()) is None:
                        ended = True
                    else:
                        messages.append(more)
                yield messages
                if ended or _is_last(messages[-1]):
                    break
            if task.done():
                task.result()
        finally:
            left.set()

    async def _run(self, asked: Asked, sent: asyncio.Queue[Message | None], left: asyncio.Event) -> None:
        bodies = [{"type": "http.request", "body": asked.body, "more_body": False}]

        async def receive() -> Message:
            if bodies:
                return bodies.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if left.is_set():
                return
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (REPLICA.lower().encode(), self._name.encode())]
                message = {**message, "headers": headers}
            sent.put_nowait(message)

        scope = {**asked.scope, "asgi": {"version": "3.0", "spec_version": "2.3"}, "extensions": {}, "state": {}}
        if asked.replica and asked.replica != self._name:
            await error_response(gone(asked.replica))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def check_health(self) -> None:
        """Raise if the engine is dead: Ray asks now and then, and starts another replica in its place."""
        if (failure := self._service.failure) is not None:  # not where it recovers: a new one could not load either
            raise again(failure)

    async def close(self) -> None:
        await self._life.aclose()


def gone(replica: str) -> HTTPError:
    """404: the replica that a request names is not there."""
    what = f"{REPLICA}: there is no replica {replica!r:.40} any more"
    return HTTPError(404, what, type="invalid_request_error", code="replica_gone")


def _is_last(message: Message) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body", False)


def _ray_name() -> str:
    from ray import serve

    context: Any = serve.get_replica_context()
    return str(context.replica_id.unique_id)
