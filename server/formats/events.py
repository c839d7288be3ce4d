"""Server-sent events: the headers of their streams, and events that have names."""

from __future__ import annotations

from dflash_local.server.encoding import encode
from dflash_local.server.formats.reply import Body

# Caches and proxies must not hold events back.
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def named_event(body: Body) -> str:
    """An event named by its body's `type`, as Anthropic's and OpenAI's newer streams have them."""
    return f"event: {body['type']}\ndata: {encode(body).decode()}\n\n"
