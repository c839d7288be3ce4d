"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


@contextmanager
def complete_or_absent(path: Path) -> Iterator[BinaryIO]:
    """A file that appears at `path` when the block ends, whole, or not at all."""
    # No process's number: in two containers that share a folder it is the same.
    temporary = path.with_name(f".{uuid4().hex}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
