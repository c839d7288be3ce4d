"""What containers/install.sh takes of dist/, without a container."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="is for images of Linux")


def taken(repo: Path, folder: Path) -> str:
    """The wheel that an image for the CPU would get."""
    script = (repo / "containers" / "install.sh").read_text()
    function = re.search(r"^own\(\) \{.*?^\}", script, re.MULTILINE | re.DOTALL)
    assert function
    command = f"backend='cpu --portable'\n{function[0]}\nown"
    done = subprocess.run(["sh", "-euc", command], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_image_keeps_compiled_modules(repo: Path) -> None:
    """Its user cannot write them: every start would compile all modules again."""
    commands = re.sub(r"^\s*#.*", "", (repo / "containers" / "install.sh").read_text(), flags=re.MULTILINE)
    assert "__pycache__" not in commands and "--no-compile" not in commands


def test_an_image_takes_the_newest_wheel_that_fits(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    machine, other = platform.machine(), "other64"

    def wheel(version: str, backend: str, tag: str, time: int) -> str:
        path = Path("dist") / f"dflash_local-{version}+{backend}-py3-none-{tag}.whl"
        (tmp_path / path).touch()
        os.utime(tmp_path / path, (time, time))
        return str(path)

    wheel("9.9.9", "cpu", f"manylinux_2_28_{other}", 4)
    wheel("9.9.9", "cpu", f"macosx_13_3_{machine}", 4)
    wheel("9.9.9", "cuda", f"linux_{machine}", 4)
    assert taken(repo, tmp_path) == "", "it would not run in the image"
    fits = wheel("9.9.1", "cpu", f"manylinux_2_28_{machine}", 2)
    wheel("9.9.0", "cpu", f"linux_{machine}", 1)
    assert taken(repo, tmp_path) == fits
    newest = wheel("9.9.2", "cpu", f"linux_{machine}", 3)
    assert taken(repo, tmp_path) == newest
