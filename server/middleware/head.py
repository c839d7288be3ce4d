"""HeadAsGet: HEAD works wherever GET does."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from dflash_local.server.middleware.http_middleware import HTTPMiddleware


class HeadAsGet(HTTPMiddleware):
    """ASGI middleware: the app sees a GET; the server sends no body, since the request was a HEAD."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
