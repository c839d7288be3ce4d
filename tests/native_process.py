"""A module of the tests in a process of its own, which calls the native library without the engine around it: an
assertion of llama.cpp ends that process, not the test run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dflash_local.native import library_path


def run_native(repo: Path, module: str, *args: str) -> subprocess.CompletedProcess[str]:
    """`python -m module args` in the folder `repo`, on the library that dflash_local loads. Its exit code is the
    caller's to read."""
    return subprocess.run(
        [sys.executable, "-m", module, *args],
        cwd=repo, capture_output=True, text=True, env={**os.environ, "LLAMA_CPP_LIB_PATH": str(library_path().parent)},
    )  # fmt: skip
