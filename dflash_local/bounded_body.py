"""A response's body, unless it is too long to be kept in memory."""

from __future__ import annotations

from collections.abc import Iterable


def bounded_body(chunks: Iterable[bytes], limit: int) -> bytes | None:
    """The chunks, joined. None if they have more than `limit` bytes; then no more of them are read."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)
