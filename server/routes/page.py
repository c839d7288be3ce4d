"""The chat page: its built files (docs/page.md), and what the browser lets them do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from dflash_local.server.routes.endpoint import add_endpoint, nothing
from dflash_local.server.settings import Settings

INDEX = "index.html"
# The system's own list differs between machines, and browsers run no script of a wrong type.
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
# Only files from here, nothing inline, requests only to this server, HTML only through the page's sanitizer.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "font-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
HEADERS = {
    "Cache-Control": "no-cache",  # always asked for again; unchanged files are not sent again
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
ICON_SECONDS = 86_400


@dataclass(frozen=True)
class PageFile:
    """One of the built files."""

    body: bytes
    media_type: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """All of them, by name."""
    folder = files("dflash_local.server") / "page" / "dist"
    hashes: dict[str, str] = json.loads((folder / "build.json").read_text(encoding="utf-8"))["files"]
    return {
        name: PageFile((folder / name).read_bytes(), MEDIA_TYPES[name.rpartition(".")[2]], f'"{digest[:32]}"')
        for name, digest in hashes.items()
    }


def add_routes(app: FastAPI, settings: Settings) -> None:
    """The page and its files."""

    async def page(request: Request) -> Response:
        """A page to chat with the model."""
        path: bytes = request.scope["raw_path"]
        if not path.endswith(b"/"):  # the root path alone, which the page's relative addresses would miss
            return RedirectResponse(path.rpartition(b"/")[2].decode() + "/", 308)
        return serve(request, INDEX)

    async def page_file(request: Request, name: str) -> Response:
        """What the page consists of."""
        return serve(request, name)

    async def icon(request: Request) -> Response:
        """Browsers ask for one even if the page names another."""
        return Response(status_code=204, headers={"Cache-Control": f"public, max-age={ICON_SECONDS}"})

    def serve(request: Request, name: str) -> Response:
        if not settings.webui:
            raise HTTPException(404, "started with --no-webui")
        file = page_files().get(name)
        if file is None:
            raise HTTPException(404, "the page has no such file")
        headers = {**HEADERS, "ETag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, media_type=file.media_type, headers=headers)

    for path, handler in (("/", page), ("/page/{name}", page_file), ("/favicon.ico", icon)):
        add_endpoint(app, (path,), handler, answer=None, methods=["GET"], needs=nothing, include_in_schema=False)
