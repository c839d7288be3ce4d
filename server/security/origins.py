"""Which web pages may use the server: CORS headers for those that may, 403 for the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dflash_local.server.fields.fields import IGNORED
from dflash_local.server.http_errors import HTTPError, error_response
from dflash_local.server.middleware.http_middleware import HTTPMiddleware
from dflash_local.server_address import is_loopback

ANY, LOCALHOST = "*", "localhost"
# Origins of programs on the user's own machine (Obsidian, Tauri, VS Code): no web page can have them.
APP_SCHEMES = frozenset({"app", "capacitor", "ionic", "tauri", "vscode-file", "vscode-webview"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# What a page may read of an answer besides its body.
EXPOSED = f"Retry-After, {IGNORED}"
PREFLIGHT_SECONDS = 600
_REFERRER = re.compile(r"([^/]*//[^/]*)/.*", re.DOTALL)  # an origin and a path


@dataclass(frozen=True)
class Cors:
    """CORS settings, with llama-server's defaults; see --cors-origins and its companions.

    Attributes:
        origins: origins, "*" for all, "localhost" for every port of this machine and for programs on it.
        methods, headers: sent as they are; but "*" for headers lists those that a page asks for, since for browsers "*"
            covers neither Authorization nor any request with credentials.
    """

    origins: tuple[str, ...] = (ANY,)
    methods: str = "GET, POST, DELETE, OPTIONS"
    headers: str = "*"
    credentials: bool = True

    def allows(self, origin: str) -> bool:
        """Whether a page of this origin may use the server."""
        if ANY in self.origins or (LOCALHOST in self.origins and _is_local(origin)):
            return True
        return origin in self.origins and origin != LOCALHOST


def _is_local(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
        return parts.scheme in APP_SCHEMES or (parts.scheme in ("http", "https") and is_loopback(parts.hostname or ""))
    except ValueError:
        return False


class CorsHeaders(HTTPMiddleware):
    """ASGI middleware: every answer, errors too, tells the browser whether the page may read it; every OPTIONS is
    answered here, because preflight requests carry no key."""

    def __init__(self, app: ASGIApp, cors: Cors) -> None:
        super().__init__(app)
        self._cors = cors

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin")
        if scope["method"] == "OPTIONS":
            await self._preflight(Headers(scope=scope))(scope, receive, send)
        elif origin is None:
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, self._with_headers(send, origin))

    def _with_headers(self, send: Send, origin: str) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add(MutableHeaders(scope=message), origin)
            await send(message)

        return send_with_headers

    def _add(self, headers: MutableHeaders, origin: str | None) -> None:
        reflects = self._cors.credentials or self._cors.origins != (ANY,)
        if reflects:
            headers.add_vary_header("Origin")
        if origin is None or not self._cors.allows(origin):
            return
        headers["Access-Control-Allow-Origin"] = origin if reflects else ANY
        headers["Access-Control-Expose-Headers"] = EXPOSED
        if self._cors.credentials:
            headers["Access-Control-Allow-Credentials"] = "true"

    def _preflight(self, asked: Headers) -> Response:
        answer = Response(media_type="text/plain")
        origin = asked.get("origin")
        self._add(answer.headers, origin)
        answer.headers["Access-Control-Allow-Methods"] = self._cors.methods
        wanted = asked.get("access-control-request-headers")
        answer.headers["Access-Control-Allow-Headers"] = (
            wanted if wanted and self._cors.headers == ANY else self._cors.headers
        )
        answer.headers["Access-Control-Max-Age"] = str(PREFLIGHT_SECONDS)
        if origin and self._cors.allows(origin) and "access-control-request-private-network" in asked:
            answer.headers["Access-Control-Allow-Private-Network"] = "true"
        return answer


class OriginCheck(HTTPMiddleware):
    """ASGI middleware: 403 for requests from pages of a foreign origin. CORS alone keeps them from reading the answer,
    not from asking: neither a POST of text/plain nor a picture needs a preflight."""

    def __init__(self, app: ASGIApp, cors: Cors) -> None:
        super().__init__(app)
        self._cors = cors

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._refuses(scope["method"], headers):
            await error_response(_refusal(_origin(headers)))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refuses(self, method: str, headers: Headers) -> bool:
        if method in SAFE_METHODS:  # links of other sites may lead here
            return is_foreign(headers, self._cors) and headers.get("sec-fetch-mode") != "navigate"
        origin = headers.get("origin")
        return origin is not None and not self._cors.allows(origin) and not _is_own(origin, headers.get("host", ""))


def is_foreign(headers: Headers, cors: Cors) -> bool:
    """Whether a page of another site asks, one that may not use the server. Browsers tell that over HTTPS and on
    loopback addresses; other programs do not."""
    return headers.get("sec-fetch-site") == "cross-site" and not cors.allows(_origin(headers))


def _origin(headers: Headers) -> str:
    """The origin of the page that asks; empty if it is not told. Without `Origin`, as for pictures, the referrer may
    tell it."""
    origin = headers.get("origin")
    return _REFERRER.sub(r"\1", headers.get("referer", "")).lower() if origin is None else origin


def _is_own(origin: str, host: str) -> bool:
    """Whether the page came from this server, under whatever name."""
    return origin.partition("://")[2].lower() == host.lower()


def _refusal(origin: str) -> HTTPError:
    return HTTPError(
        403,
        f"pages of {f'the origin {origin!r:.80}' if origin else 'other sites'} may not use this server: start it with "
        "--cors-origins to name those that may",
        code="origin_not_allowed",
    )


def parse_origins(text: str) -> tuple[str, ...]:
    """The list of --cors-origins, in small letters, as browsers send them."""
    return tuple(origin for part in text.lower().split(",") if (origin := part.strip().rstrip("/")))


def default_origins(keys: Sequence[str]) -> tuple[str, ...]:
    """Without a key only the user's own pages: any other page in the browser could use the model."""
    return (ANY,) if keys else (LOCALHOST,)
