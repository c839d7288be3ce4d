"""KeyCheck: every request shows an API key."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from starlette.types import ASGIApp, Receive, Scope, Send

from dflash_local.server.http_errors import UNAUTHORIZED, error_response
from dflash_local.server.middleware.http_middleware import HTTPMiddleware
from dflash_local.server.route_path import route_path

# What is the same on every server of this version is no secret, and browsers send no key for a page.
PUBLIC = frozenset({"/", "/favicon.ico", "/health", "/v1/health", "/docs", "/openapi.json"})

# The number of the key that the request of this context showed; 0 without keys. Requests of one key are quoted only in
# answers for the same key (--lookup-answers).
key_number: ContextVar[int] = ContextVar("key_number", default=0)

KEY_HEADER = b"x-dflash-key"  # the number of a request's key, from a router to its instances
_NUMBER = re.compile(rb"[0-9]{1,9}")


class KeyCheck(HTTPMiddleware):
    """ASGI middleware: 401 for every path that is not public, unless the client shows one of the keys."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        super().__init__(app)
        self._keys = [key.encode() for key in keys]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        number = self._shown(scope["headers"])
        if not _is_public(route_path(scope)) and not number:
            await error_response(UNAUTHORIZED)(scope, receive, send)
        else:
            key_number.set(number)
            await self._app(scope, receive, send)

    def _shown(self, headers: Sequence[tuple[bytes, bytes]]) -> int:
        """The number of the key that the client shows, from 1 on; 0: none."""
        # All credentials against all keys, so that the time reveals nothing.
        shown = [
            number * hmac.compare_digest(credential, key)
            for credential in _credentials(headers)
            for number, key in enumerate(self._keys, 1)
        ]
        return max(shown, default=0)


class RoutersKey(HTTPMiddleware):
    """ASGI middleware of an instance: the router, which checked the key, says its number."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = next((value for name, value in scope["headers"] if name == KEY_HEADER), b"0")
        if not _NUMBER.fullmatch(said):
            await error_response(UNAUTHORIZED)(scope, receive, send)
        else:
            key_number.set(int(said))
            await self._app(scope, receive, send)


def _is_public(path: str) -> bool:
    return path in PUBLIC or path.startswith(("/docs/", "/page/"))


def _credentials(headers: Sequence[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """What the client shows. A proxy's own `Authorization: Basic ...` does not hide an X-Api-Key."""
    for name, value in headers:
        if name == b"x-api-key":
            yield value
        elif name == b"authorization":
            scheme, _, credential = value.partition(b" ")
            yield credential.strip() if scheme.lower() == b"bearer" else value
