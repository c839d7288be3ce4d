"""The folder of a cache, the Hub's or our own: a check for free space, and errors of reading and writing there."""

from __future__ import annotations

import shutil
from pathlib import Path

from dflash_local.disk import full_disk_hint, is_full
from dflash_local.errors import HubError
from dflash_local.words import file_size_text

# The variable that moves it.
HUB_CACHE = "LLAMA_CACHE (or HF_HOME)"
OWN_CACHE = "DFLASH_CACHE"


def check_space(folder: Path, needed: int, variable: str = HUB_CACHE) -> None:
    """Raise HubError if `needed` bytes do not fit below `folder`, which need not exist."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        free = shutil.disk_usage(folder).free
    except OSError:
        return  # unknown; writing will fail if it is full
    if needed > free:
        raise HubError(
            f"not enough disk space in {folder}: {file_size_text(free)} free, {file_size_text(needed)} needed",
            hint=full_disk_hint(variable),
        )


def failed(folder: Path, error: OSError, part: Path | None = None, variable: str = HUB_CACHE) -> HubError:
    """The HubError for an error while reading or writing below `folder`; `part` is the partial download."""
    if not is_full(error):
        return HubError(
            f"cannot use the cache {folder}: {error.strerror or error}",
            hint=f"check its rights, or point {variable} elsewhere",
        )
    kept = ""
    if part and (size := size_of(part)):
        kept = f"; {file_size_text(size)} are kept in {part} for the next try"
    return HubError(f"the disk of {folder} is full ({error.strerror}){kept}", hint=full_disk_hint(variable))


def has_file(path: Path) -> bool:
    """Whether there is a file at `path`, in our own cache. Raises HubError if its folder cannot be searched."""
    try:
        return path.is_file()
    except OSError as error:
        raise failed(path.parent, error, variable=OWN_CACHE) from None


def size_of(path: Path) -> int:
    """Size in bytes; 0 if the file does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
