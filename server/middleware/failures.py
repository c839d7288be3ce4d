"""Failures: unexpected exceptions become answers, too."""

from __future__ import annotations

import logging

from starlette.types import Message, Receive, Scope, Send

from dflash_local.server.http_errors import error_response
from dflash_local.server.middleware.http_middleware import HTTPMiddleware
from dflash_local.server.middleware.request_log import printable

log = logging.getLogger(__name__)


class Failures(HTTPMiddleware):
    """ASGI middleware: an unexpected exception is logged and answered with a 500 in the shape of all errors.

    Starlette would answer outside all middleware, without the header by which a browser lets its page read the answer.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if begun:
                raise
            log.exception("%s failed", printable(scope["path"]))
            await error_response(error)(scope, receive, send)
