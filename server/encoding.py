"""JSON as it goes out."""

from __future__ import annotations

import json
from typing import Any

import orjson


def encode(value: Any) -> bytes:
    """JSON in UTF-8, ten times as fast as with `json`, since streams have many events. What orjson cannot write,
    such as integers beyond 64 bits, `json` writes."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
