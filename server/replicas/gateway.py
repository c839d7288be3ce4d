"""Gateway: reads a request whole, lets Ray choose its replica, and passes on what the replica sends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dflash_local.errors import again
from dflash_local.server.connected import while_connected
from dflash_local.server.encoding import encode
from dflash_local.server.fields.body import LONG
from dflash_local.server.formats.events import STREAMS
from dflash_local.server.http_errors import ClientLeft, HTTPError, api_at, error_response
from dflash_local.server.middleware.http_middleware import HTTPMiddleware
from dflash_local.server.replicas.asked import Asked
from dflash_local.server.route_path import route_path

log = logging.getLogger(__name__)

# How many replicas are asked, if each dies before its answer begins.
TRIES = 3

LOST = HTTPError(503, "the replica that wrote this answer is gone: ask again", code="replica_lost")


class Messages(Protocol):
    """What a replica sends; `cancel` lets it end."""

    def __aiter__(self) -> AsyncIterator[list[Message]]: ...

    def __anext__(self) -> Awaitable[list[Message]]: ...

    def cancel(self) -> object: ...


class Gateway(HTTPMiddleware):
    """ASGI middleware, which answers every HTTP request itself.

    Args:
        answer: asks a replica.
        patience: seconds that a request waits for a replica that takes it.
    """

    def __init__(self, app: ASGIApp, answer: Callable[[Asked], Messages], patience: float) -> None:
        super().__init__(app)
        self._answer, self._patience = answer, patience

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _body(receive)
            asked = Asked.of(scope, body) if len(body) < LONG else await asyncio.to_thread(Asked.of, scope, body)
            with suppress(ClientLeft):
                await while_connected(receive, self._pass_on(asked, scope, send))
        except _TooLate as error:
            raise again(LOST) from error.__cause__
        except HTTPError as error:
            await error_response(error)(scope, receive, send)

    async def _pass_on(self, asked: Asked, scope: Scope, send: Send) -> None:
        for tries_left in reversed(range(TRIES)):
            answer = _Answer(send, scope)
            try:
                await answer.follow(self._answer(asked), self._patience)
                return
            except Exception as error:
                if isinstance(error, HTTPError):
                    raise
                log.warning("a replica was lost: %s", type(error).__name__)
                if answer.begun:
                    await answer.break_off()
                    return
                if not tries_left:
                    raise again(LOST) from None


class _TooLate(Exception):
    """The answer has begun and cannot say that it failed: its connection must break."""


class _Answer:
    """What one replica sends to one client."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send, self._scope = send, scope
        self._streams = False
        self.begun = False

    async def follow(self, messages: Messages, patience: float) -> None:
        """Pass its messages on. Raises what Ray raises if the replica ends."""
        try:
            try:
                await asyncio.wait_for(anext(messages), patience)
            except asyncio.TimeoutError:
                raise _busy(patience) from None
            async for some in messages:
                for message in some:
                    self._look(message)
                    await self._send(message)
        except BaseException:
            messages.cancel()
            raise

    def _look(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self._streams = Headers(raw=message["headers"]).get("content-type", "").startswith(STREAMS)

    async def break_off(self) -> None:
        """End an answer that will never be complete: a stream with an error, anything else with its connection."""
        if not self._streams:
            raise _TooLate
        api = api_at(route_path(self._scope))
        event = api.last_event(encode(api.error(LOST)[1]))
        await self._send({"type": "http.response.body", "body": event, "more_body": False})


def _busy(patience: float) -> HTTPError:
    return HTTPError(503, f"no replica took the request within {patience:g} s", code="no_replica", retry_after=5)


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
