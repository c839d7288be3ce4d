"""Server-sent events: the headers of their streams, and events that have names."""

from __future__ import annotations

import json

from dflash_local.server.formats.reply import Body

# Neither caches nor proxies may hold an event back.
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def named_event(body: Body) -> str:
    """An event named by its body's `type`, as Anthropic's and OpenAI's newer streams have them."""
    return f"event: {body['type']}\ndata: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
