"""The file that keeps measured pass times between two starts: one for each pair, machine, build and setting.

libdflash reads and writes the file. Its name, made here, is a hash of everything that changes the cost of a pass.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_local import native
from dflash_local.build.upstream import cache_dir
from dflash_local.diagnose import tuning
from dflash_local.diagnose.finding import Finding, ok, warn
from dflash_local.diagnose.identity import build_identity, model_identity
from dflash_local.diagnose.machine import this_machine, usable_cores
from dflash_local.engine_options import COST_OPTIONS, EngineOptions


def cost_file(
    model: str | os.PathLike[str], drafter: str | os.PathLike[str] | None, arguments: Mapping[str, Any]
) -> Path:
    """The file for a pair with these values of COST_OPTIONS, on this machine and with this build.

    Raises:
        NativeLibraryError: the patched llama.cpp is missing.
    """
    library, machine = native.library_info(), this_machine()
    conditions = {
        "files": [model_identity(Path(path)) for path in (model, drafter) if path is not None],
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


def folder() -> Path:
    return cache_dir() / "costs"


def usable(file: Path) -> str | None:
    """The path for libdflash if the file's folder can be written, else None: then every start measures again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(file) if os.access(file.parent, os.W_OK | os.X_OK) else None


def look_at_costs(options: EngineOptions) -> Finding:
    """Are the pass times of this pair, with these options, kept from an earlier start? They matter only with a
    drafter."""
    if not options.cost_cache or not options.warmup:
        return ok("pass times", "measured at every start" if options.warmup else "not measured (--no-warmup)")
    file = cost_file(options.model, options.drafter, vars(options))
    try:
        age = time.time() - file.stat().st_mtime
    except OSError:
        if usable(file) is None:
            return warn(
                "pass times",
                f"{file.parent} cannot be written: every start measures again",
                "point DFLASH_CACHE elsewhere",
            )
        return ok("pass times", f"not measured yet; the first start will keep them in {file}")
    return ok("pass times", f"kept {_ago(age)} ago in {file}")


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}{'s' * (seconds >= 2 * size)}"
    return "less than a minute"
