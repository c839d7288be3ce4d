"""Server-sent events that have names."""

from __future__ import annotations

import json

from dflash_local.server.formats.reply import Body


def named_event(body: Body) -> str:
    """An event named by its body's `type`, as Anthropic's and OpenAI's newer streams have them."""
    return f"event: {body['type']}\ndata: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
