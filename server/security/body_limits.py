"""BodyLimits: request bodies are bounded in size, in time, and in total."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dflash_local.server.http_errors import HTTPError, error_response
from dflash_local.server.middleware.http_middleware import HTTPMiddleware
from dflash_local.server.security.limits import Limits

_COUNTED = "counted_body"  # where the scope's state has it


class BodyLimits(HTTPMiddleware):
    """ASGI middleware: `receive` keeps to the limits, or raises HTTPError: 408 too slow, 413 too long, 503 too many."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        super().__init__(app)
        self.limits = limits
        self._held = 0  # bytes of all bodies beyond their free part

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self.limits.body:
            await error_response(too_long(self.limits.body))(scope, receive, send)
            return
        body = scope.setdefault("state", {})[_COUNTED] = _Body(receive, send, self)
        try:
            await self._app(scope, body.receive, body.send)
        finally:
            body.release()

    def hold(self, n_bytes: int) -> None:
        """Count bytes of a body. Raises HTTPError if there are too many."""
        if self._held + n_bytes > self.limits.bodies:
            raise HTTPError(
                503,
                f"all request bodies together are longer than {self.limits.bodies} bytes: try again later",
                code="too_many_bodies",
                retry_after=5,
            )
        self._held += n_bytes

    def release(self, n_bytes: int) -> None:
        """Stop counting these bytes."""
        self._held -= n_bytes


def keep_body(scope: Scope) -> Callable[[], None]:
    """Let the body of a request count on when its answer begins: until the returned function is called, or the answer
    has ended."""
    body: _Body = scope["state"][_COUNTED]
    body.is_kept = True
    return body.release


class _Body:
    """The body of one request on its way to the app. It counts until the answer begins, as by then it has been read;
    longer if it `is_kept`."""

    is_kept = False

    def __init__(self, receive: Receive, send: Send, owner: BodyLimits) -> None:
        self._receive, self._send, self._owner = receive, send, owner
        self._deadline = 0.0
        self._size = self._held = 0
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        self._deadline = self._deadline or now + self._owner.limits.timeout
        try:
            message = await asyncio.wait_for(self._receive(), self._deadline - now)
        except asyncio.TimeoutError:
            raise HTTPError(
                408, f"the body did not come within {self._owner.limits.timeout:g} s", code="body_timeout"
            ) from None
        if message["type"] == "http.request":
            self._count(len(message.get("body", b"")))
        self._complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self.is_kept:
            self.release()
        await self._send(message)

    def release(self) -> None:
        """Stop counting all of it."""
        self._owner.release(self._held)
        self._held = 0

    def _count(self, n_bytes: int) -> None:
        self._size += n_bytes
        if self._size > self._owner.limits.body:
            raise too_long(self._owner.limits.body)
        more = max(self._size - self._owner.limits.free_body, 0) - self._held
        if more > 0:
            self._owner.hold(more)
            self._held += more


def too_long(limit: int) -> HTTPError:
    return HTTPError(413, f"the body is longer than {limit} bytes (--max-body)", code="body_too_large")
