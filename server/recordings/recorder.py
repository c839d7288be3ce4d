"""Recorder: a stream that its client has named goes on when the client is gone, and is kept for its return."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dflash_local.server.fields.body import parse_json
from dflash_local.server.http_errors import OLLAMA, Cancelled, HTTPError, error_response
from dflash_local.server.middleware.http_middleware import HTTPMiddleware
from dflash_local.server.recordings.recording import Recording
from dflash_local.server.recordings.recordings import HEADER, Recordings
from dflash_local.server.route_path import route_path

_LONG = 1 << 16  # bytes of a body that are not read on the event loop


class Recorder(HTTPMiddleware):
    """ASGI middleware. For the app, the client of a recorded request never leaves, until the request is cancelled."""

    def __init__(self, app: ASGIApp, recordings: Recordings) -> None:
        super().__init__(app)
        self._recordings = recordings

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = Headers(scope=scope).get(HEADER) if scope["method"] == "POST" else None
        if not name or route_path(scope).startswith(OLLAMA):  # whose streams are none of events
            await self._app(scope, receive, send)
            return
        request = _Recorded(name, self._recordings, receive, send)
        try:
            await self._app(scope, request.receive, request.send)
        finally:
            request.close()
        if request.cancelled_early:
            await error_response(Cancelled())(scope, receive, send)


class _Recorded:
    """One request and its answer. Only streams are recorded: other answers end with their connection."""

    def __init__(self, name: str, recordings: Recordings, receive: Receive, send: Send) -> None:
        self._name, self._recordings, self._receive, self._send = name, recordings, receive, send
        self._recording: Recording | None = None
        self._body: list[bytes] = []
        self._answered = False

    @property
    def cancelled_early(self) -> bool:
        """Whether it was cancelled before its answer began, when nothing had been sent."""
        return self._recording is not None and self._recording.cancelled.is_set() and not self._answered

    async def receive(self) -> Message:
        if self._recording is not None:
            await self._recording.cancelled.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request":
            self._body.append(message.get("body", b""))
            if not message.get("more_body"):
                body = b"".join(self._body)
                self._body.clear()
                if await asyncio.to_thread(_streams, body) if len(body) > _LONG else _streams(body):
                    self._recording = self._recordings.begin(self._name)
        return message

    async def send(self, message: Message) -> None:
        recording = self._recording
        if self.cancelled_early:
            return
        if recording is not None:
            self._record(recording, message)
        self._answered = True
        await self._send(message)

    def _record(self, recording: Recording, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            if kind.startswith("text/event-stream"):
                self._recordings.open(recording)
            else:
                self._recordings.forget(recording)  # it was refused
        elif recording.began and message.get("body") and not recording.cancelled.is_set():
            recording.append(message["body"])

    def close(self) -> None:
        """The answer is complete, or never will be."""
        if self._recording is not None:
            self._recordings.finish(self._recording)


def _streams(body: bytes) -> bool:
    """Whether this body asks for a stream. The app says what is wrong with it."""
    try:
        return b'"stream"' in body and parse_json(body).get("stream") is True
    except HTTPError:
        return False
