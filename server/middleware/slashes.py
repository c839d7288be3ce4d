"""Slashes: a path with superfluous slashes is the path without them."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from dflash_local.server.middleware.prefix import route_path

_MANY = re.compile("//+")


class Slashes:
    """ASGI middleware: drops a slash at the end, and merges several into one. A redirect would not do: clients repeat a
    POST without its body, or as a GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            prefix = scope.get("root_path", "")
            path = _MANY.sub("/", route_path(scope))
            path = path.rstrip("/") or "/"
            if path != route_path(scope):
                scope = {**scope, "path": prefix + path}
        await self._app(scope, receive, send)
