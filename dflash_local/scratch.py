"""What is made inside the cache, on whose disk there is room, before it is moved into place; and what killed processes
left of it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = ".scratch-"
_OLDEST = 86400.0  # seconds; a process that lives needs hours at most


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove the files and folders of this pattern that nobody has written to for a day."""
    for left in folder.glob(pattern):
        with suppress(OSError):  # another process is faster, or uses it
            if time.time() - left.stat().st_mtime > _OLDEST:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def scratch_in(folder: Path) -> Iterator[Path]:
    """A temporary folder inside `folder`, which exists. Those that killed processes left there are removed a day later.
    Raises OSError."""
    remove_leftovers(folder, f"{_PREFIX}*")
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=folder) as path:
        yield Path(path)
