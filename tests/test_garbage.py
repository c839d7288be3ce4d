"""When Python looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dflash_local.garbage import collect_rarely, keep_all


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_imports_are_not_looked_through_and_what_they_made_stays() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    collect_rarely()
    n_collections = gc.get_stats()[0]["collections"]
    kept = [[] for _ in range(50_000)]  # type: ignore[var-annotated]
    assert gc.get_stats()[0]["collections"] == n_collections
    keep_all()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() >= frozen + len(kept)
