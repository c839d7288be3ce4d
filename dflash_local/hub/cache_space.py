"""The cache's disk: a check for free space, and errors of writing there."""

from __future__ import annotations

import shutil
from pathlib import Path

from dflash_local.disk import is_full
from dflash_local.errors import HubError
from dflash_local.words import file_size_text

_ELSEWHERE = "free some, or point LLAMA_CACHE (or HF_HOME) at a larger disk"


def check_space(folder: Path, needed: int, hint: str = _ELSEWHERE) -> None:
    """Raise HubError with `hint` if `needed` bytes do not fit below `folder`, which need not exist."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return  # unknown; writing will fail if it is full
    if needed > free:
        raise HubError(
            f"not enough disk space in {folder}: {file_size_text(free)} free, {file_size_text(needed)} needed",
            hint=hint,
        )


def failed(folder: Path, error: OSError, part: Path | None = None) -> HubError:
    """The HubError for an error while writing below `folder`; `part` is the partial download."""
    if not is_full(error):
        return HubError(
            f"cannot write to the cache {folder}: {error.strerror or error}",
            hint="check its rights, or point LLAMA_CACHE (or HF_HOME) elsewhere",
        )
    kept = ""
    if part and (size := size_of(part)):
        kept = f"; {file_size_text(size)} are kept in {part} for the next try"
    return HubError(f"the disk of {folder} is full ({error.strerror}){kept}", hint=_ELSEWHERE)


def size_of(path: Path) -> int:
    """Size in bytes; 0 if the file does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
