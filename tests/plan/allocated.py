"""A plan against what is then allocated, as tests of several kinds of devices ask it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dflash_local.demo.shapes import Pair
from tests.placement.worker import Worker

PROMPTS = ["Write an SQL query that selects every factor above 5 from the table prices.\n", "Count from 15.\n" * 8]
OPTIONS: dict[str, Any] = {
    "n_ctx": 2048, "n_slots": 2, "n_threads": 1, "warmup": False, "cost_cache": False,
    "mmap": False,  # what is mapped has gaps, which take nothing
}  # fmt: skip
# The host takes memory for passes when it needs it: a plan has the most that it can be.
AS_NEEDED = {"compute", "drafter_compute", "output"}
NEAR = 0.03


def check(worker: Worker, pair: Pair, place: dict[str, Any], n: int = 24) -> None:
    """Each part on each device is within 3 % of its plan after two answers of n tokens, or below it where it grows with
    need."""
    options = OPTIONS | place | {"model": pair.target, "drafter": pair.drafter}
    answer = worker.ask(options, PROMPTS, max_tokens=n, plan=True)
    assert "error" not in answer, answer
    compare(answer["planned"]["placement"], answer["info"]["placement"])


def compare(planned: Mapping[str, Mapping[str, int]], allocated: Mapping[str, Mapping[str, int]]) -> None:
    """Bytes by device and part."""
    assert planned.keys() == allocated.keys()
    for device, parts in allocated.items():
        fixed = parts.keys() - (AS_NEEDED if device == "CPU" else set())
        assert fixed == planned[device].keys() - (AS_NEEDED if device == "CPU" else set()), device
        for part in fixed:
            assert planned[device][part] == pytest.approx(parts[part], rel=NEAR), (device, part)
        for part in parts.keys() - fixed:
            assert parts[part] <= planned[device][part] * (1 + NEAR), (device, part)
