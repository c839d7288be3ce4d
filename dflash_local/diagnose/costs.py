"""Where the measured pass times of a pair are kept between two starts: one small file per pair, machine, build and
setting.

libdflash reads and writes the file; here is only its name, a hash of everything that changes what a pass costs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_local.build.upstream import cache_dir
from dflash_local.diagnose.machine import this_machine
from dflash_local.options import COST_OPTIONS


def cost_file(
    model: str | os.PathLike[str], drafter: str | os.PathLike[str] | None, arguments: Mapping[str, Any]
) -> Path:
    """The file for a pair with these values of options.COST_OPTIONS, here and with this build.

    Raises:
        NativeLibraryError: there is no build.
    """
    from dflash_local import native
    from dflash_local.diagnose import tuning

    library, machine = native.library_info(), this_machine()
    conditions = {
        "files": [_identity(Path(path)) for path in (model, drafter) if path is not None],
        "abi": native.ABI_VERSION,
        "build": build_identity(),
        "tuned": tuning.read_table()[0],
        "machine": [
            machine.cpu,
            usable_cores(),
            *([device["name"], device["description"]] for device in library["devices"]),
        ],
        # 0, None and an empty string mean the same: the default.
        "arguments": {name: arguments[name] or None for name in COST_OPTIONS},
    }
    name = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:24]
    return folder() / f"{name}.json"


def build_identity() -> list[Any]:
    """What tells this build of the native libraries from every other. NativeLibraryError: there is none."""
    from dflash_local import native

    library = native.library_info()
    files = sorted(native.library_path().resolve().parent.glob("*.[sd][oyl]*"))
    return [library.get("version"), library.get("llama"), *map(_identity, files)]


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def folder() -> Path:
    """Where the files are."""
    return cache_dir() / "costs"


def usable(file: Path) -> str | None:
    """The path for libdflash if the file's folder can be written, else None: without a cache, every start measures
    anew."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(file) if os.access(file.parent, os.W_OK | os.X_OK) else None


def _identity(path: Path) -> list[Any]:
    """A file's path, size and time of change. What cannot be read has none: loading will say so."""
    try:
        stat = path.stat()
    except OSError:
        return [str(path)]
    return [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
