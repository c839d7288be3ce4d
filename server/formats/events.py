"""Streams: their headers, events that have names, and errors that end them."""

from __future__ import annotations

from dflash_local.server.encoding import encode
from dflash_local.server.formats.reply import Body
from dflash_local.server.http_errors import MESSAGES, OLLAMA

# Caches and proxies must not hold events back.
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
NDJSON = "application/x-ndjson"  # Ollama's streams: a JSON object on each line
EVENTS = "text/event-stream"
STREAMS = (EVENTS, NDJSON)


def named_event(body: Body) -> str:
    """An event named by its body's `type`, as Anthropic's and OpenAI's newer streams have them."""
    return f"event: {body['type']}\ndata: {encode(body).decode()}\n\n"


def error_event(path: str, body: bytes) -> bytes:
    """An error's body as the last event of the stream at a route's path."""
    if path.startswith(OLLAMA):
        return body + b"\n"
    return (b"event: error\ndata: " if MESSAGES in path else b"data: ") + body + b"\n\n"
