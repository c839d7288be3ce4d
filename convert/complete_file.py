"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def complete_or_absent(path: Path) -> Iterator[BinaryIO]:
    """A file that appears at `path` when the block ends, whole, or not at all."""
    # No process's number: in two containers that share a folder it is the same.
    temporary = path.with_name(f".{os.urandom(16).hex()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
