"""Slots that were saved, restored or erased."""

from __future__ import annotations

from dflash_local.server.shapes.answer import Answer


class SaveTimings(Answer):
    """How long it took."""

    save_ms: float


class RestoreTimings(Answer):
    """How long it took."""

    restore_ms: float


class SlotSaved(Answer):
    """Tokens and bytes that were written."""

    id_slot: int
    filename: str
    n_saved: int
    n_written: int
    timings: SaveTimings


class SlotRestored(Answer):
    """Tokens and bytes that were read."""

    id_slot: int
    filename: str
    n_restored: int
    n_read: int
    timings: RestoreTimings


class SlotErased(Answer):
    """Tokens that were forgotten."""

    id_slot: int
    n_erased: int
