"""Sizes of files, and sizes in words."""

from __future__ import annotations

from pathlib import Path

from dflash_local.convert.gguf_parts import part_paths
from dflash_local.errors import ModelError
from dflash_local.machine.hardware import GIB


def model_size(path: Path) -> int:
    """Bytes of a model's file, or of all its existing parts if `path` is the first. Raises ModelError: it cannot be
    read."""
    try:
        return sum(part.stat().st_size for part in part_paths(path) if part == path or part.exists())
    except OSError as error:
        raise ModelError(f"cannot read {error.filename}: {error.strerror}", hint="check the path") from None


def size_text(size: float) -> str:
    """Bytes as GiB or MiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.0f} MiB"
