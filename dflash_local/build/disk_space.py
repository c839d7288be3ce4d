"""Disk space: a check before a build, and one error for a full disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from dflash_local.disk import full_disk_hint
from dflash_local.errors import BuildError

NEEDED = {"cuda": 4 << 30, "hip": 4 << 30}  # bytes; the other backends take 0.4 GiB
NEEDED_DEFAULT = 1 << 30


def check_space(folder: Path, backend: str) -> None:
    """Raise BuildError if `folder` has too little room for a build of `backend`."""
    needed = NEEDED.get(backend, NEEDED_DEFAULT)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise disk_full(folder, f": {free / 2**30:.1f} GiB free, {needed / 2**30:.0f} GiB needed")


def disk_full(folder: Path, detail: str = "") -> BuildError:
    return BuildError(f"not enough disk space in {folder}{detail}", hint=full_disk_hint())
