"""The build that is installed in this Python environment. Every server reads its stamp, so this imports little."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

STAMP = "dflash.json"
LIBRARY = re.compile(r"(^|/)(lib)?dflash\.(so|dylib|dll)$")


def installed_stamp() -> dict[str, Any] | None:
    """The stamp of `build` in this environment's llama_cpp: key, version, llama_cpp_commit and all fields of Recipe.

    None if llama_cpp is missing, stock, or without libdflash. Reads one small file; never imports llama_cpp.
    Thread-safe.
    """
    spec = importlib.util.find_spec("llama_cpp")
    for package in (spec.submodule_search_locations or []) if spec else []:
        try:
            stamp = json.loads((Path(package) / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(stamp, dict) and any(map(LIBRARY.search, (file.name for file in Path(package, "lib").glob("*")))):
            return stamp
    return None
