"""RootPath: everything is served below a path, as behind a proxy that shares its name with others."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from dflash_local.server.http_errors import HTTPError, error_response
from dflash_local.server.middleware.http_middleware import HTTPMiddleware


class RootPath(HTTPMiddleware):
    """ASGI middleware: requests below the path go on, with it as ASGI's `root_path`; all others are not found."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        super().__init__(app)
        self._root = root

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == self._root or scope["path"].startswith(self._root + "/"):
            path = scope["path"] if scope["path"] != self._root else self._root + "/"
            await self._app({**scope, "path": path, "root_path": self._root}, receive, send)
        else:
            missing = HTTPError(404, f"everything here is below {self._root}")
            await error_response(missing)(scope, receive, send)
