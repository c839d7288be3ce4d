"""Streams that were named by their client: read again, looked up and cancelled, as in llama-server."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dflash_local.errors import RequestError, again
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON, encode
from dflash_local.server.fields.streams import StreamsLookup
from dflash_local.server.formats.events import STREAM_HEADERS
from dflash_local.server.http_errors import Cancelled, HTTPError, api_at
from dflash_local.server.recordings.recording import Recording
from dflash_local.server.recordings.recordings import HEADER, Recordings
from dflash_local.server.routes.endpoint import add_endpoint, query_number, query_parameter
from dflash_local.server.shapes.streams import KeptStream

GONE = HTTPError(404, "Stream not found or expired")
NOT_BEGUN = HTTPError(503, "the stream has not begun", code="not_begun", retry_after=1)
LOST = 'data: {"error":{"message":"the stream is no longer kept from here on","type":"server_error"}}\n\n'


def add_routes(app: DocumentedApp, recordings: Recordings) -> None:
    """What is kept of streams."""

    async def stream(request: Request) -> Response:
        """A stream from one of its bytes on: what was sent, and what is still to come."""
        recording = recordings.find(_name(request))
        start = query_number(request, "from", "the number of a byte", 18)
        if recording is None:
            raise again(GONE)
        if not recording.began:
            raise again(NOT_BEGUN)
        if start < recording.dropped:
            raise RequestError(f"Stream offset lost: bytes before {recording.dropped} are gone", param="from")
        return StreamingResponse(_rest(recording, start), headers=STREAM_HEADERS, media_type="text/event-stream")

    async def cancel(request: Request) -> Response:
        """Cancel a stream and forget it."""
        recordings.remove(_name(request))
        return Response(status_code=204)

    async def lookup(request: Request, body: StreamsLookup) -> Response:
        """Which of these streams are kept. Only streams that are named are found."""
        return JSON([_kept(recording) for recording in recordings.known(body.conversation_ids)])

    name = query_parameter("conv_id", f"the {HEADER}", {"type": "string"}, required=True)
    start = query_parameter("from", "the first byte (default: 0)", {"type": "integer", "minimum": 0})
    add_endpoint(
        app,
        ("/v1/stream",),
        stream,
        answer=None,
        methods=("GET",),
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        openapi_extra={"parameters": [name, start]},
        needs=None,
    )
    add_endpoint(
        app,
        ("/v1/stream",),
        cancel,
        answer=None,
        methods=("DELETE",),
        status_code=204,
        openapi_extra={"parameters": [name]},
        needs=None,
    )
    add_endpoint(app, ("/v1/streams/lookup",), lookup, answer=list[KeptStream], wakes=False, needs=None)


async def _rest(recording: Recording, start: int) -> AsyncIterator[bytes]:
    try:
        async for piece in recording.read(start):
            yield piece
    except LookupError:  # the reader is slower than the stream
        yield LOST.encode()
    if recording.cancelled.is_set():
        api = api_at("/v1/chat/completions")  # whichever it was: the event is the last one
        yield api.last_event(encode(api.error(Cancelled())[1]))


def _name(request: Request) -> str:
    name = request.query_params.get("conv_id", "")
    if not name:
        raise RequestError(f"conv_id is missing: the {HEADER} that the stream was asked with", param="conv_id")
    return name


def _kept(recording: Recording) -> KeptStream:
    return {
        "conversation_id": recording.name,
        "is_done": recording.completed_at > 0,
        "total_bytes": recording.total,
        "started_at": int(recording.started_at),
        "completed_at": int(recording.completed_at),
    }
