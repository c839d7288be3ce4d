"""Forwarded: a request that an instance answers, once it is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from urllib.parse import quote

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dflash_local.errors import DFlashError
from dflash_local.server.connected import beside, while_connected
from dflash_local.server.encoding import encode
from dflash_local.server.fields.fields import IGNORED
from dflash_local.server.formats.events import EVENTS, NDJSON, STREAM_HEADERS, STREAMS
from dflash_local.server.formats.ollama import empty_part
from dflash_local.server.http_errors import OLLAMA, ClientLeft, api_at
from dflash_local.server.route_path import route_path
from dflash_local.server.router.instance import Instance
from dflash_local.server.router.pool import Pool
from dflash_local.server.security.body_limits import keep_body
from dflash_local.server.security.key_check import KEY_HEADER, key_number

log = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]

# Headers of one connection, or of what the router does itself: checking access, keeping streams.
_NOT_SENT = frozenset(
    b"host content-length origin sec-fetch-site authorization x-api-key cookie connection keep-alive "
    b"proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade expect "
    b"x-conversation-id".split()
)
_LOOKS = ("GET", "HEAD")
_NOT_RETURNED = frozenset(b"connection keep-alive transfer-encoding date server".split())


@dataclass(frozen=True)
class IncomingRequest:
    """What the router read of a request: its body, whether it wants a stream, the seconds of silence after which that
    is pinged (-1: never), and whether it waits for a model that drains, and is loaded again for it."""

    body: bytes = b""
    stream: bool = False
    ping_interval: float = -1
    waits: bool = True


class Forwarded(Response):
    """The answer of a model's instance, as it comes. If the client leaves, the instance stops working on it.

    A stream that waits long for its model is begun and pinged, because clients and proxies give up on silent ones.
    """

    def __init__(self, pool: Pool, instance: Instance, incoming: IncomingRequest) -> None:
        super().__init__()
        self._pool, self._instance, self._incoming = pool, instance, incoming
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body_sent = keep_body(scope)  # a stream begins while its body waits for the model
        with suppress(ClientLeft):
            await while_connected(receive, self._answer(scope, send, body_sent))

    async def _answer(self, scope: Scope, send: Send, body_sent: Callable[[], None]) -> None:
        async with AsyncExitStack() as stack:
            try:
                async with self._pinged(scope, send):
                    is_work = scope["method"] not in _LOOKS
                    use = self._pool.use(self._instance, is_work=is_work, waits=is_work and self._incoming.waits)
                    await stack.enter_async_context(use)
            except DFlashError as error:
                if not self._begun:
                    raise
                await self._fail(scope, send, error)
                return
            await self._forward(scope, send, self._request(scope, body_sent))

    def _request(self, scope: Scope, body_sent: Callable[[], None]) -> httpx.Request:
        """The request for the instance. Only this has the body, until that is sent: a large one would else be here
        until the answer's end."""
        body, self._incoming = self._incoming.body, replace(self._incoming, body=b"")
        length = [(b"content-length", b"%d" % len(body))] if body else []
        return self._instance.client.build_request(
            scope["method"],
            _url(scope),
            headers=_sent(scope["headers"]) + length,
            content=_once([body], body_sent) if body else None,
        )

    async def _forward(self, scope: Scope, send: Send, request: httpx.Request) -> None:
        instance, is_stream = self._instance, self._begun
        try:
            response = await instance.client.send(request, stream=True)
            try:
                is_stream = is_stream or response.headers.get("content-type", "").startswith(STREAMS)
                await self._pass_on(scope, send, response)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            log.error("%s: %s", instance.model.name, error or type(error).__name__)
            if not self._begun:
                raise instance.died() from None
            if is_stream:
                await self._fail(scope, send, instance.died())
            # Otherwise the client sees that the answer is shorter than its length.

    async def _pass_on(self, scope: Scope, send: Send, response: httpx.Response) -> None:
        if self._begun and response.status_code != 200:
            await self._end(scope, send, await response.aread())
            return
        if self._begun and (names := response.headers.get(IGNORED)):  # the headers are sent
            await self._send(send, self._ignored(route_path(scope), names))
        if not self._begun:
            self._begun = True
            headers = [(name.lower(), value) for name, value in response.headers.raw]
            headers = [field for field in headers if field[0] not in _NOT_RETURNED]
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for data in response.aiter_raw():
            await self._send(send, data)
        await self._send(send, b"", more=False)

    async def _fail(self, scope: Scope, send: Send, error: DFlashError) -> None:
        """End a stream with an error."""
        await self._end(scope, send, encode(api_at(route_path(scope)).error(error)[1]))

    async def _end(self, scope: Scope, send: Send, error: bytes) -> None:
        await self._send(send, api_at(route_path(scope)).last_event(error), more=False)

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": more})

    @asynccontextmanager
    async def _pinged(self, scope: Scope, send: Send) -> AsyncIterator[None]:
        """Begin a stream and ping it while the block waits."""
        if not self._incoming.stream or self._incoming.ping_interval <= 0:
            yield
            return
        async with beside(self._ping(route_path(scope), send)):
            yield

    async def _ping(self, path: str, send: Send) -> None:
        while True:
            await asyncio.sleep(self._incoming.ping_interval)
            if not self._begun:
                self._begun = True
                headers = [(name.lower().encode(), value.encode()) for name, value in STREAM_HEADERS.items()]
                kind = NDJSON if path.startswith(OLLAMA) else f"{EVENTS}; charset=utf-8"
                headers.append((b"content-type", kind.encode()))
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send(send, self._sign(path))

    def _ignored(self, path: str, names: str) -> bytes:
        """The header as a comment; in Ollama's streams, which have none, in a part without text."""
        if path.startswith(OLLAMA):
            return encode(empty_part(path, self._instance.model.name, **{IGNORED: names})) + b"\n"
        return f": {IGNORED}: {names}\n\n".encode()

    def _sign(self, path: str) -> bytes:
        """That it still waits, as a comment; Ollama's streams have none, but parts without text."""
        if path.startswith(OLLAMA):
            return encode(empty_part(path, self._instance.model.name)) + b"\n"
        if self._instance.is_up:  # it drains
            return b": waiting\n\n"
        return f": loading {100 * self._instance.progress:.0f} %\n\n".encode()


async def _once(parts: list[bytes], sent: Callable[[], None]) -> AsyncIterator[bytes]:
    """The only part, which is dropped as it is passed on."""
    yield parts.pop()
    sent()


def _url(scope: Scope) -> httpx.URL:
    """The address of a request at its instance, which refuses it in its own words: httpx refuses some characters."""
    query = scope["query_string"].replace(b"#", b"%23")
    return httpx.URL("http://instance").copy_with(path=quote(route_path(scope), safe="/:"), query=query or None)


def _sent(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    sent = [field for field in headers if field[0] not in _NOT_SENT and field[0] != KEY_HEADER]
    return [*sent, (KEY_HEADER, str(key_number.get()).encode())]
