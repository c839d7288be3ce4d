"""Connections: all open ones, how many and for how long; each is uvicorn's protocol with limits."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send

from dflash_local.server.http_errors import HTTPError, error_response
from dflash_local.server.security.limits import Limits
from dflash_local.server.uvicorn_parts import H11Protocol

# Files that the process needs besides connections: models, logs, listening sockets.
SPARE_FILES = 128
SWEEP_SECONDS = 0.5
_LINGER_NOT = struct.pack("ii", 1, 0)

FULL = HTTPError(503, "too many connections are busy: try again later", code="too_many_connections", retry_after=5)
SLOW = HTTPError(408, "the head of the request did not come in time", code="head_timeout")


class Connections:
    """The open connections of a server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # without a request, longest first

    def protocol(self, *args: Any, **kwargs: Any) -> Connection:
        """uvicorn's `http_protocol_class`."""
        return Connection(self, *args, **kwargs)

    async def watch(self) -> None:
        """End connections that are too slow, for as long as the server runs."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = asyncio.get_running_loop().time()
            for connection in [*self._open]:
                connection.end_if_late(now, self._limits)

    def add(self, connection: Connection) -> bool:
        """Add a connection. False if there are too many, and all others are answering a request."""
        self._open.add(connection)
        has_room = len(self._open) <= self._limits.connections
        if not has_room and self._idle:
            longest = next(iter(self._idle))
            self.remove(longest)
            longest.drop()
            has_room = True
        self._idle[connection] = None
        return has_room

    def remove(self, connection: Connection) -> None:
        """It is closed, or about to be."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def set_idle(self, connection: Connection, idle: bool) -> None:
        """A request has ended or begun."""
        self._idle.pop(connection, None)
        if idle and connection in self._open:
            self._idle[connection] = None


class Connection(H11Protocol):
    """A client's connection. h11 bounds the length of a head; here are the limits that uvicorn does not have: time for
    the head, for a body whose answer did not wait for it, and for a client that does not read; the number of
    connections."""

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._all = connections
        self._answer: ASGIApp = self.app
        self.app = self._run
        self._n_requests = 0  # a second one may begin before the first one's handler has returned
        self._due_since: float | None = self.loop.time()  # since when a head, or the rest of a body, is due
        self._has_head = False  # whether a part of that head has come
        self._full_since: float | None = None  # the client does not read
        self._closing_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._all.add(self):
            self._answer = _refuse

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn does not after a reset, and its timer holds the last answer

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_due()

    def pause_writing(self) -> None:
        self._full_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._full_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with an error in the usual shape, unless an answer has begun."""
        error = HTTPError(400, msg, code="invalid_http")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write_error(error)
        self.transport.close()

    def end_if_late(self, now: float, limits: Limits) -> None:
        """Close the connection if its client is too slow."""
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > limits.head_timeout:
                self._abort()  # the client does not read the rest
        elif self._full_since is not None and now - self._full_since > limits.timeout:
            self._abort()
        elif self._due_since is not None and now - self._due_since > limits.head_timeout:
            if self._has_head:
                self._write_error(SLOW)
            self.transport.close()

    def drop(self) -> None:
        """Close it to make room: it has no request."""
        if self.transport.get_write_buffer_size():
            self._abort()
        else:
            self.transport.close()

    def _abort(self) -> None:
        """Close without sending the rest, which the system would otherwise try for as long as it takes."""
        with suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self.transport.abort()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._n_requests += 1
        self._has_head, self._due_since = False, None
        self._all.set_idle(self, False)
        try:
            await self._answer(scope, receive, send)
        finally:
            self._n_requests -= 1
            self._all.set_idle(self, not self._n_requests)
            self._note_due()

    def _note_due(self) -> None:
        """Note since when the client has to send something, unless a request is being answered. If it need not, the
        connection idles."""
        if self._n_requests or self.transport.is_closing():
            return
        if self.conn.our_state is h11.DONE:  # a body whose answer did not wait for it: the next head comes after it
            self._due_since = self._due_since or self.loop.time()
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            if not self._has_head:
                self._has_head, self._due_since = True, self.loop.time()
        elif self.conn.their_state is h11.IDLE:
            self._due_since = None
            self._rearm_keep_alive()

    def _rearm_keep_alive(self) -> None:
        """Let uvicorn end the connection if it idles for too long. `data_received()` of `H11Protocol` stops the clock
        with the first bytes, here those of a body; this starts it as `on_response_complete()` of uvicorn 0.54 does."""
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _write_error(self, error: HTTPError) -> None:
        """Refuse what is no HTTP request."""
        response = error_response(error)
        head = [b"HTTP/1.1 %d %s" % (response.status_code, HTTPStatus(response.status_code).phrase.encode())]
        head += [b"%s: %s" % field for field in (*response.raw_headers, (b"connection", b"close"))]
        self.transport.write(b"\r\n".join((*head, b"", bytes(response.body))))


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    response = error_response(FULL)
    response.headers["Connection"] = "close"
    await response(scope, receive, send)


def connections_possible(wanted: int) -> int:
    """How many connections the process can hold, `wanted` at most: its limit of open files is raised if need be."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + SPARE_FILES:
        soft = wanted + SPARE_FILES if hard == resource.RLIM_INFINITY else min(wanted + SPARE_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(min(wanted, soft - SPARE_FILES), 1)
