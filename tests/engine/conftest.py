"""The pocket target without the Python engine around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_local.native import NativeEngine


@pytest.fixture(scope="module")
def engine(pocket: dict[str, Path]) -> Iterator[NativeEngine]:
    engine = NativeEngine({"model": str(pocket["target"]), "n_ctx": 256, "n_threads": 1, "warmup": False, "budget": 1})
    yield engine
    engine.destroy()
