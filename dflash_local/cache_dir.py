"""The folder of what is downloaded, built and measured once."""

from __future__ import annotations

import os
from pathlib import Path

from dflash_local.home_dir import home_dir


def cache_dir() -> Path:
    """The folder of downloads, work trees and built wheels: $DFLASH_CACHE, $XDG_CACHE_HOME/dflash-local or
    ~/.cache/dflash-local. Raises DFlashError for a user without a home."""
    if own := os.environ.get("DFLASH_CACHE"):
        return Path(own).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or home_dir("DFLASH_CACHE") / ".cache"
    return Path(base).expanduser().resolve() / "dflash-local"
