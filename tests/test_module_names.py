"""Names of modules: those of this checkout, and which of a made-up one are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.module_names import faults


def test_names_are_not_shared() -> None:
    assert list(faults()) == []


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("dflash_local/hub/disk.py", "dflash_local/build/disk.py", True),
        ("dflash_local/hub/disk.py", "server/disk.py", True),
        ("dflash_local/hub/disk.py", "server/routes/disk.py", True),
        ("server/disk.py", "server/routes/disk.py", False),
        ("server/fields/disk.py", "server/routes/disk.py", False),
        ("dflash_local/cli/commands/bench.py", "dflash_local/bench.py", False),
        ("dflash_local/cli/commands/flags.py", "dflash_local/flags.py", True),
        ("benchmarks/load.py", "server/load.py", False),
        ("convert/__init__.py", "server/__init__.py", False),
    ],
)
def test_shared_names(tmp_path: Path, one: str, other: str, shared: bool) -> None:
    for file in (one, other):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert bool(list(faults(tmp_path))) == shared
