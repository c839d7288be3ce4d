"""Kept streams."""

from __future__ import annotations

from dflash_local.server.shapes.answer import Answer


class KeptStream(Answer):
    """A stream that can be read again."""

    conversation_id: str
    is_done: bool
    total_bytes: int
    started_at: int
    completed_at: int
