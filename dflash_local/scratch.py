"""Temporary folders inside the cache, on whose disk something large is made before it is moved into place."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = ".scratch-"
_OLDEST = 86400.0  # seconds; a process that lives needs hours at most


@contextmanager
def scratch_in(folder: Path) -> Iterator[Path]:
    """A temporary folder inside `folder`, which exists. Those that killed processes left there are removed a day later.
    Raises OSError."""
    for left in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another process is faster
            if time.time() - left.stat().st_mtime > _OLDEST:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=folder) as path:
        yield Path(path)
