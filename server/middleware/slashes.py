"""Slashes: a path with superfluous slashes is the path without them."""

from __future__ import annotations

import re

from starlette.types import Receive, Scope, Send

from dflash_local.server.middleware.http_middleware import HTTPMiddleware
from dflash_local.server.route_path import route_path

_MANY = re.compile("//+")


class Slashes(HTTPMiddleware):
    """ASGI middleware: drops a slash at the end, and merges several into one. A redirect would not do: clients repeat a
    POST without its body, or as a GET."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _MANY.sub("/", route_path(scope)).rstrip("/") or "/"
        if path != route_path(scope):
            scope = {**scope, "path": scope.get("root_path", "") + path}
        await self._app(scope, receive, send)
