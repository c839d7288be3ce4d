"""Windows by wine: the native tests and one drafted generation, with what mingw-w64 compiles and Python for Windows.

Wine runs on this processor itself, so that the same kernels compute: the text must be Linux's, and the drafts too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from . import wine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(wine.missing()), reason=wine.missing() or "all is here"),
]
# Of each kind of test some: sanitizers and hours of kernels are for Linux, here the system's part can differ.
NATIVE = (
    "^(request|gdn_ops.*|products|slot_file|tree|verified_tree|sample_and_match|controller|lookup|host_cache|gbnf)$"
)


def test_native_tests() -> None:
    project = wine.native_tests()
    command = ["ctest", "--test-dir", str(project.folder), "--tests-regex", NATIVE, "--output-on-failure"]
    done = subprocess.run(command, env=wine.environment(), input="", stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_drafted_generation_is_that_of_linux(tmp_path: Path) -> None:
    program = "tests.windows.generation"
    here = subprocess.run(
        [sys.executable, "-m", program, str(tmp_path / "here")], capture_output=True, text=True, check=True
    )
    there = wine.python().run("-m", program, str(tmp_path / "there"), timeout=600)
    assert there.returncode == 0, there.stdout
    told = json.loads(there.stdout.splitlines()[-1])
    assert told == json.loads(here.stdout)
    assert told["tree"]["text"] == told["off"]["text"]
    assert told["tree"]["accepted"] > 0
    assert told["restored"]
    assert not [name for name in told["files"] if name.endswith(".part")]
