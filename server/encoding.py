"""JSON of answers."""

from __future__ import annotations

import json
from typing import Any

import orjson
from starlette.responses import Response


def encode(value: Any) -> bytes:
    """JSON in UTF-8. orjson is ten times as fast as `json`, which matters for streams of many events; `json` writes
    what orjson cannot, such as integers beyond 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class JSON(Response):
    """A JSON body, written as UTF-8 without escapes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)
