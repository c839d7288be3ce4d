"""The size of a model's files."""

from __future__ import annotations

from pathlib import Path

from dflash_local.convert.gguf_parts import part_paths
from dflash_local.errors import ModelError


def model_size(path: Path) -> int:
    """Bytes of a model's file, or of all its existing parts if `path` is the first. Raises ModelError: it cannot be
    read."""
    try:
        return sum(part.stat().st_size for part in part_paths(path) if part == path or part.exists())
    except OSError as error:
        raise ModelError(f"cannot read {error.filename}: {error.strerror}", hint="check the path") from None
