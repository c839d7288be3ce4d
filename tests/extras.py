"""Packages of the extra `test-all`, which `make test` does not install."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


def needs(package: str) -> None:
    """Skip the running test if the package isn't here; `make test-all` (DFLASH_TEST_ALL=1) has to have it, so there the
    test fails."""
    if find_spec(package) is not None:
        return
    sentence = f"{package} is not installed: pip install -e '.[test-all]'"
    if os.environ.get("DFLASH_TEST_ALL") == "1":
        pytest.fail(sentence)
    pytest.skip(sentence)
