"""Sizes of files, and sizes in words."""

from __future__ import annotations

from pathlib import Path

from dflash_local.diagnose.machine import GIB
from dflash_local.errors import ModelError


def file_size(path: Path) -> int:
    """Bytes. ModelError: it cannot be read."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}", hint="check the path") from None


def size_text(size: float) -> str:
    """Bytes as GiB or MiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.0f} MiB"
