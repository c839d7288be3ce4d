"""The tests of devices, on Mesa's software Vulkan: `python -m tests.devices [arguments of pytest]`.

The backend is built into a virtual environment of its own, so that the checkout's own build stays as it is; the build
comes from the cache if nothing has changed. Where the machine lacks what is needed, that is said, and nothing fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.devices.software_vulkan import MissingError, cmake_flags, environment

REPO = Path(__file__).resolve().parents[2]
VENV = REPO / "build" / "devices" / "venv"
BIN = VENV / "bin"


def build(flags: list[str]) -> None:
    """Make or complete the environment. Raises CalledProcessError."""
    if not (BIN / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(BIN / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", f"{REPO}[test]"], check=True)
    subprocess.run([str(BIN / "dflash-local"), "build", "--backend", "vulkan", "--", *flags], check=True)


def main(arguments: list[str]) -> int:
    """The exit status: of the build if it fails, else of pytest."""
    try:
        device, flags = environment(), cmake_flags()
    except MissingError as error:
        print(f"the tests of devices are left out: {error}", flush=True)
        return 0
    try:
        build(flags)
    except subprocess.CalledProcessError as error:
        return error.returncode
    path = os.pathsep.join([str(BIN), device["PATH"]])  # ninja and cmake are there
    pytest = [str(BIN / "python"), "-m", "pytest", str(REPO / "tests" / "devices"), *arguments]
    return subprocess.run(pytest, cwd=REPO, env={**device, "PATH": path}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
