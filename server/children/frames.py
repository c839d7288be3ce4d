"""Frames: how the server and its children talk over pipes. A frame is a JSON object, followed by bytes."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from typing import Any

_HEAD = struct.Struct("<IQ")  # sizes of the object and of the bytes

Frame = tuple[dict[str, Any], bytes]


def pack(message: dict[str, Any], data: bytes = b"") -> bytes:
    """A frame's bytes."""
    text = json.dumps(message, ensure_ascii=False).encode()
    return _HEAD.pack(len(text), len(data)) + text + data


def read(descriptor: int) -> Frame | None:
    """The next frame of a pipe; None once the other side is gone."""
    head = _exactly(descriptor, _HEAD.size)
    if head is None:
        return None
    n_text, n_data = _HEAD.unpack(head)
    text, data = _exactly(descriptor, n_text), _exactly(descriptor, n_data)
    return None if text is None or data is None else (json.loads(text), data)


def _exactly(descriptor: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


async def receive(stream: asyncio.StreamReader) -> Frame | None:
    """`read` on an event loop."""
    try:
        n_text, n_data = _HEAD.unpack(await stream.readexactly(_HEAD.size))
        text, data = await stream.readexactly(n_text), await stream.readexactly(n_data)
    except asyncio.IncompleteReadError:
        return None
    return json.loads(text), data
