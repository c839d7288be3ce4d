"""Fixtures that several rooms share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


# Shells start background jobs with SIGINT ignored, and children inherit that: tests that press Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repo() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def pocket() -> dict[str, Path]:
    """The GGUFs that ship with the package: `target`, `dflash`, `dflash2`, `dflash-small`."""
    folder = ROOT / "dflash_local" / "demo"
    files = {name: folder / f"pocket-{name}.gguf" for name in ("target", "dflash", "dflash2", "dflash-small")}
    missing = [path.name for path in files.values() if not path.is_file()]
    assert not missing, f"{folder} lacks {missing}"
    return files
