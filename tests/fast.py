"""Which cases of a sweep `make test` runs: the rest waits for `make test-all`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def some_fast(values: Iterable[Any], fast: Container[Any]) -> list[Any]:
    """Parameters for all `values`, tuples being those of several names; what is not among the `fast` ones is slow."""
    slow = pytest.mark.slow
    parts = ((value, value if isinstance(value, tuple) else (value,)) for value in values)
    return [pytest.param(*part, marks=() if value in fast else slow) for value, part in parts]
