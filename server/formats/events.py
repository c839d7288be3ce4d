"""Streams: their headers, events that have names, and errors that end them."""

from __future__ import annotations

from dflash_local.server.encoding import encode_line
from dflash_local.server.formats.reply import Body

# Caches and proxies must not hold events back.
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
NDJSON = "application/x-ndjson"  # Ollama's streams: a JSON object on each line
EVENTS = "text/event-stream"
STREAMS = (EVENTS, NDJSON)


def named_event(body: Body) -> str:
    """An event named by its body's `type`, as Anthropic's and OpenAI's newer streams have them."""
    return f"event: {body['type']}\ndata: {encode_line(body).decode()}\n\n"
