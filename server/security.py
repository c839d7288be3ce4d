"""Who may ask: API keys."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from dflash_local.server.errors import UNAUTHORIZED, error_response

# What is the same for every server of this version is no secret, and browsers send no key for a page.
PUBLIC = frozenset({"/", "/health", "/v1/health", "/docs", "/openapi.json"})


class KeyCheck:
    """ASGI middleware: 401 for every path that is not public, unless the client shows one of the keys."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app, self._keys = app, [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _public(scope["path"]) and not self._allows(dict(scope["headers"])):
            await error_response(UNAUTHORIZED)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allows(self, headers: dict[bytes, bytes]) -> bool:
        credential = headers.get(b"authorization", headers.get(b"x-api-key", b"")).removeprefix(b"Bearer ")
        return True in [hmac.compare_digest(credential, key) for key in self._keys]  # all of them: time tells nothing


def _public(path: str) -> bool:
    return path in PUBLIC or path.startswith("/docs/")
