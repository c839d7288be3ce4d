"""The file that keeps measured pass times between two starts: one for each pair, machine, build and setting.

libdflash reads and writes the file. Its name, made here, is a hash of everything that changes the cost of a pass.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_local import native
from dflash_local.cache_dir import cache_dir
from dflash_local.engine_options import COST_OPTIONS
from dflash_local.machine import tuning
from dflash_local.machine.hardware import core_limit, processor, usable_cores
from dflash_local.machine.identity import build_identity, model_identity


def cost_file(
    model: str | os.PathLike[str], drafter: str | os.PathLike[str] | None, arguments: Mapping[str, Any]
) -> Path:
    """The file for a pair with these values of COST_OPTIONS, on this machine and with this build.

    Raises:
        NativeLibraryError: the patched llama.cpp is missing.
    """
    library = native.library_info()
    conditions = {
        "files": [model_identity(Path(path)) for path in (model, drafter) if path is not None],
        "abi": native.ABI_VERSION,
        "build": build_identity(),
        "tuned": tuning.read_counts()[0],
        "machine": [
            processor(),
            usable_cores(),
            *filter(None, [core_limit()]),
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
