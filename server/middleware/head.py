"""HeadAsGet: HEAD works wherever GET does."""

from __future__ import annotations

from starlette.types import Message, Receive, Scope, Send

from dflash_local.server.middleware.http_middleware import HTTPMiddleware


class HeadAsGet(HTTPMiddleware):
    """ASGI middleware: the app sees a GET, whose client leaves once it has the head. A stream may never end by itself,
    and the connection's next request would wait for that."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        await self._app({**scope, "method": "GET"}, receive, send_head)
