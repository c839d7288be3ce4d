"""The tiny hybrids as files, written once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from . import models


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of an architecture by its name in `models`."""
    folder = tmp_path_factory.mktemp("hybrid")
    return cache(lambda name: models.write(name, folder / f"{name}.gguf"))
