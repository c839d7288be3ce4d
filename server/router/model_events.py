"""Events of models, for all who listen at /models/sse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dflash_local.server.connected import beside, while_connected
from dflash_local.server.encoding import encode
from dflash_local.server.formats.events import STREAM_HEADERS
from dflash_local.server.http_errors import ClientLeft
from dflash_local.server.shapes.router import ModelEvent

# Events that a listener may lag behind; beyond that, the oldest are lost.
MOST = 1024
PING_SECONDS = 30.0


class Events:
    """Hands each event to all who listen, for one event loop."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[bytes]] = set()

    def publish(self, event: str, model: str, data: dict[str, Any] | None = None) -> None:
        """An event of a model ("*": of all), in llama-server's terms."""
        if self._listeners:
            body: ModelEvent = {"model": model, "event": event}
            if data is not None:
                body["data"] = data
            line = b"data: " + encode(body) + b"\n\n"
            for queue in self._listeners:
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(line)

    async def listen(self) -> AsyncIterator[bytes]:
        """Events from now on; comments while there are none."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(MOST)
        self._listeners.add(queue)
        try:
            yield b": these are events of models\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), PING_SECONDS)
                except asyncio.TimeoutError:
                    yield b":\n\n"
        finally:
            self._listeners.discard(queue)


class EventFeed(Response):
    """All events, until the client leaves or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, events: Events, stopping: asyncio.Event) -> None:
        super().__init__(headers=STREAM_HEADERS)
        del self.headers["content-length"]
        self._events, self._stopping = events, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def feed() -> None:
            async for line in self._events.listen():
                await send({"type": "http.response.body", "body": line, "more_body": True})

        async with beside(feed()):
            with suppress(ClientLeft):
                await while_connected(receive, self._stopping.wait())
        await send({"type": "http.response.body", "body": b""})
