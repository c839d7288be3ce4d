"""Wheels of dflash-local and of all that it depends on, in one folder: from it pip, pipx, uv and containers install
without network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_UNWANTED = ("PYTHONPATH", "DFLASH_LIBRARY", "DFLASH_CPU_VARIANT", "VIRTUAL_ENV")


def clean_environment() -> dict[str, str]:
    """The environment, without what points at this checkout and its .venv."""
    return {name: value for name, value in os.environ.items() if name not in _UNWANTED}


def output(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> str:
    """What a command prints; the test fails with all that it said if the command does."""
    done = subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def fill(folder: Path, wheels: Path, *asked: str, python: str | None = None) -> Path:
    """Copy `wheels` into a new `folder` and download what `asked` need besides, for a Python such as "3.11" (default:
    this one). They are names, or files among the wheels (default: dflash-local). Returns the folder."""
    shutil.copytree(wheels, folder)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "-d", str(folder)]
    pip += ["--python-version", python or ".".join(map(str, sys.version_info[:2])), "--find-links", str(wheels)]
    pip += [str(folder / name) if name.endswith(".whl") else name for name in asked or ("dflash-local",)]
    output(pip, clean_environment())
    return folder


def without_network() -> tuple[str, ...]:
    """What to put before a command so that it has no network; skips the test where that cannot be."""
    command = ("unshare", "--net") if os.getuid() == 0 else ("unshare", "--net", "--map-root-user")
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network namespaces for this user")
    return command
