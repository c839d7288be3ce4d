"""Folders that a build writes to: an OSError about one becomes one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_local.build.disk_space import disk_full
from dflash_local.disk import is_full
from dflash_local.errors import BuildError


@contextmanager
def folder_errors(folder: Path, hint: str) -> Iterator[None]:
    """Turn an OSError about `folder` into a BuildError with this hint."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise disk_full(folder) from None
        raise BuildError(f"{error.filename or folder}: {error.strerror or error}", hint=hint) from None


@contextmanager
def cache_errors(cache: Path) -> Iterator[None]:
    """Turn an OSError about the cache folder into a BuildError."""
    with folder_errors(cache, "check the folder's permissions, or set DFLASH_CACHE"):
        yield
