"""StaticFolder: the files of --path."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from dflash_local.server.middleware.http_middleware import HTTPMiddleware
from dflash_local.server.route_path import route_path


class StaticFolder(HTTPMiddleware):
    """ASGI middleware: a file of the folder answers for its path, "/" is its index.html; all else goes on. Nothing
    outside of the folder is ever served, by `..` or by a link."""

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        super().__init__(app)
        self._files = StaticFiles(directory=folder)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            found, status = await asyncio.to_thread(self._look_up, route_path(scope))
            if status is not None and stat.S_ISREG(status.st_mode):
                await self._files.file_response(found, status, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _look_up(self, path: str) -> tuple[str, os.stat_result | None]:
        try:
            return self._files.lookup_path((path + "index.html" if path.endswith("/") else path).lstrip("/"))
        except (OSError, ValueError):  # too long, or with a null byte
            return "", None
