"""Absent: paths of llama-server, OpenAI and Ollama that this server does not have, and why."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.http_errors import not_supported
from dflash_local.server.routes import ollama
from dflash_local.server.routes.endpoint import Handler, add_endpoint

_TOOLS = "tools and MCP servers run in the client: this server runs no commands for those who can reach it"
_AUDIO = "audio is not supported"
_LORA = "adapters are not supported: merge them into the GGUF"

ABSENT = {
    "/tools": _TOOLS,
    "/cors-proxy": _TOOLS,
    "/audio/transcriptions": _AUDIO,
    "/v1/audio/{path:path}": _AUDIO,
    "/v1/images/{path:path}": "images are not supported",
    "/predict": "Vertex AI's requests are not supported: use /v1/chat/completions",
    **ollama.ABSENT,
}
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH"]


def add_routes(app: DocumentedApp, _service: object = None) -> None:
    """Answer them with 501 and the reason."""

    async def adapters(request: Request) -> Response:
        """None are loaded."""
        return JSON([])

    async def set_adapters(request: Request) -> Response:
        raise not_supported(_LORA)

    for path, why in ABSENT.items():
        add_endpoint(app, (path,), _absent(why), answer=None, methods=METHODS, include_in_schema=False)
    add_endpoint(app, ("/lora-adapters",), adapters, answer=None, methods=["GET"], include_in_schema=False)
    add_endpoint(app, ("/lora-adapters",), set_adapters, answer=None, include_in_schema=False)


def _absent(why: str) -> Handler:
    async def absent(request: Request) -> Response:
        raise not_supported(f"{request.method} {request.url.path}: {why}")

    return absent
