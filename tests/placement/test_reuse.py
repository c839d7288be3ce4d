"""Graphs are used again: on devices passes are padded to few widths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dflash_local.demo.shapes import Pair
from dflash_local.stats import EngineStats
from tests.placement.worker import Worker

PROMPTS = [
    "Write a Python context manager that logs the size.\n",
    "Write an SQL query that selects every factor above 5 from the table prices.\n",
]
GOAL = 0.95
OPTIONS: dict[str, Any] = {
    "device": "RPC0", "device_draft": "RPC0", "n_ctx": 2048, "n_slots": 1, "n_threads": 1, "cost_cache": False,
}  # fmt: skip


def stats_of(worker: Worker, pair: Pair, options: dict[str, Any]) -> EngineStats:
    answer = worker.ask(
        OPTIONS | options | {"model": pair.target, "drafter": pair.drafter}, PROMPTS, max_tokens=400,
        sampling={"temperature": 0, "ignore_eos": True},
    )  # fmt: skip
    assert "error" not in answer, answer
    return EngineStats.of(answer["stats"]) - EngineStats.of(answer["loaded"])


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_steady_decoding_reuses_graphs(worker: Worker, pairs: Callable[[str], Pair], kind: str) -> None:
    """Long answers, with trees of up to 12 nodes."""
    stats = stats_of(worker, pairs(kind), {"budget": 12})
    assert sum(stats.graphs["target_decoding"]) > 60, "the answers were too short to say anything"
    assert stats.reuse()["target_decoding"] >= GOAL, (stats.graphs, stats.nodes)
    assert sum(stats.graphs["drafter"]) > 60
    assert stats.reuse()["drafter"] >= GOAL, (stats.graphs, stats.lengths)


def test_the_host_computes_no_row_more(worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Trees of up to 11 nodes: on the host they are passes of so many rows, on a device of 16."""
    rows = {}
    for device in ("none", "RPC0"):
        pair = pairs("attention")
        options = OPTIONS | {"device": device, "device_draft": device, "budget": 11, "warmup": False}
        answer = worker.ask(
            options | {"model": pair.target, "drafter": pair.drafter}, PROMPTS[:1], max_tokens=60,
            sampling={"temperature": 0},
        )  # fmt: skip
        stats = answer["stats"]
        rows[device] = stats["rows"] / stats["passes"]
    assert rows["none"] <= 12  # the prompt's pass has some more
    assert rows["RPC0"] > 13
