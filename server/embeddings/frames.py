"""Frames: how server and worker talk over pipes. A frame is a JSON object and, behind it, bytes."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, BinaryIO

_HEAD = struct.Struct("<IQ")  # bytes of the object, bytes behind it

Frame = tuple[dict[str, Any], bytes]


def pack(message: dict[str, Any], data: bytes = b"") -> bytes:
    """A frame's bytes."""
    text = json.dumps(message, ensure_ascii=False).encode()
    return _HEAD.pack(len(text), len(data)) + text + data


def read(stream: BinaryIO) -> Frame | None:
    """The next frame; None once the other side is gone."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    n_text, n_data = _HEAD.unpack(head)
    body = stream.read(n_text + n_data)
    return (json.loads(body[:n_text]), body[n_text:]) if len(body) == n_text + n_data else None


async def receive(stream: asyncio.StreamReader) -> Frame | None:
    """`read` on an event loop."""
    try:
        n_text, n_data = _HEAD.unpack(await stream.readexactly(_HEAD.size))
        text, data = await stream.readexactly(n_text), await stream.readexactly(n_data)
    except asyncio.IncompleteReadError:
        return None
    return json.loads(text), data
