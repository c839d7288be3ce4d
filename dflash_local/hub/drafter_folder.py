"""The folder of drafters that were written for a target, $DFLASH_CACHE/drafters: converted checkpoints, and GGUFs of
other dialects. Files appear there whole, so one that is there is used without the lock, which may not be to be had."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dflash_local.cache_dir import cache_dir
from dflash_local.errors import ConvertError
from dflash_local.file_lock import locked
from dflash_local.hub import cache_space

Note = Callable[[str], None]


def drafter_folder() -> Path:
    return cache_dir() / "drafters"


def write_once(path: Path, write: Callable[[], object], note: Note) -> None:
    """Have `path`, a file of the folder, written by `write`, unless it is there or another process has written it
    meanwhile; `note` is told that one is waited for. Raises what `write` does, but HubError if the folder cannot be
    used or its disk is full."""
    if cache_space.has_file(path):
        return
    folder = path.parent
    try:
        with locked(folder / ".lock", lambda: note(f"another process writes into {folder}: waiting for it")):
            if not path.exists():
                _remove_leftovers(folder)
                write()
    except (ConvertError, OSError) as error:
        if (fault := _fault(error)) is None:
            raise
        raise cache_space.failed(folder, fault, variable=cache_space.OWN_CACHE) from None


def _fault(error: ConvertError | OSError) -> OSError | None:
    """The fault of the folder, of which the converter can only say "give another -o". None: it is another's, since a
    file that cannot be read has its name in `field`."""
    if isinstance(error, OSError):
        return error
    return error.__cause__ if error.field is None and isinstance(error.__cause__, OSError) else None


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes were writing. To be called with the lock, which all that write here take."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):
            part.unlink()
