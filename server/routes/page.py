"""The chat page: its built files (docs/page.md), and what the browser lets them do."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.page_file import PageFile, accepts_gzip, has_tag, page_files
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.settings import Settings

INDEX = "index.html"
WORKER = "sw.js"
# Only files from here, nothing inline, requests only to this server, HTML only through the page's sanitizer. Pictures
# and audio that the user attached are blobs of the page itself.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "font-src 'self'",
        "img-src 'self' data: blob:",
        "media-src blob:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify worker",
    )
)
HEADERS = {
    "Accept-Ranges": "none",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
ASK_AGAIN = "no-cache"  # unchanged files are not sent again
KEEP = "public, max-age=31536000, immutable"
ICON_SECONDS = 86_400


def add_routes(app: DocumentedApp, settings: Settings) -> None:
    """The page and its files."""

    async def page(request: Request) -> Response:
        """A page to chat with the model."""
        path: bytes = request.scope["raw_path"]
        if not path.endswith(b"/"):  # from here, the page's relative addresses would not lie below the root path
            return RedirectResponse(path.rpartition(b"/")[2].decode() + "/", 308)
        return await serve(request, INDEX)

    async def page_file(request: Request) -> Response:
        """What the page consists of."""
        return await serve(request, request.path_params["name"])

    async def icon(request: Request) -> Response:
        """Browsers ask for one even if the page names another."""
        return Response(status_code=204, headers={"Cache-Control": f"public, max-age={ICON_SECONDS}"})

    async def serve(request: Request, name: str) -> Response:
        if not settings.webui:
            raise HTTPException(404, "started with --no-webui")
        file = page_files().get(name)
        if file is None:
            raise HTTPException(404, "the page has no such file")
        return await answer(request, file)

    for path, handler in (("/", page), ("/page/{name}", page_file), ("/favicon.ico", icon)):
        add_endpoint(app, (path,), handler, answer=None, methods=["GET"], needs=None, include_in_schema=False)


async def answer(request: Request, file: PageFile) -> Response:
    """The whole file, compressed if the client can read that, or 304 if it has it."""
    gzipped = await asyncio.to_thread(lambda: file.gzipped)  # the first time it takes a while
    is_gzipped = gzipped is not None and accepts_gzip(request.headers.getlist("accept-encoding"))
    headers = {**HEADERS, "ETag": file.tag(is_gzipped), "Cache-Control": KEEP if file.is_lasting else ASK_AGAIN}
    if gzipped is not None:
        headers["Vary"] = "Accept-Encoding"
    if file.name == WORKER:
        headers["Service-Worker-Allowed"] = "../"  # it serves the page, which is one folder up
    if has_tag(request.headers.getlist("if-none-match"), file.tag(is_gzipped)):
        return Response(status_code=304, headers=headers)
    if is_gzipped:
        headers["Content-Encoding"] = "gzip"
    return Response(gzipped if is_gzipped else file.body, media_type=file.media_type, headers=headers)
