"""Graphs are used again: on devices passes are padded to few widths."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local.demo.shapes import Pair
from tests.placement.reuse import GOAL, PROMPTS, check_steady_decoding, decode, on_device, write_costs
from tests.placement.worker import Worker


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_steady_decoding_reuses_graphs(worker: Worker, pairs: Callable[[str], Pair], kind: str) -> None:
    check_steady_decoding(worker, pairs(kind), "RPC0")


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_the_controller_keeps_graphs(
    endpoints: list[str], tmp_path: Path, pairs: Callable[[str], Pair], kind: str
) -> None:
    """Widths and block lengths are its own choice, by costs that do not depend on what this machine does besides."""
    worker = Worker(endpoints, tmp_path / "worker.log", {**os.environ, "DFLASH_FIXED_COSTS": "1"})
    try:
        stats = decode(worker, pairs(kind), "RPC0", cost_cache=write_costs(tmp_path / "costs.json"))
    finally:
        worker.close()
    assert stats.cost_source == "cache"
    assert sum(stats.graphs["target_decoding"]) > 60
    assert len(stats.nodes or {}) > 3, "it chose nothing"
    assert stats.reuse()["target_decoding"] >= GOAL, (stats.graphs, stats.nodes)


def test_a_tree_after_a_prompt_has_the_graph_of_later_ones(worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Whether the state of a recurrent target has a path to take in or not."""
    stats = decode(worker, pairs("hybrid"), "RPC0", n=40, budget=12, warmup=False)
    reused, built = stats.graphs["target_decoding"]
    assert reused > 10
    assert built == 0, stats.nodes


def test_the_host_computes_no_row_more(worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Trees of up to 11 nodes: on the host they are passes of so many rows, on a device of 16."""
    rows = {}
    for device in ("none", "RPC0"):
        pair = pairs("attention")
        options = on_device(device) | {"budget": 11, "warmup": False}
        answer = worker.ask(
            options | {"model": pair.target, "drafter": pair.drafter}, PROMPTS[:1], max_tokens=60,
            sampling={"temperature": 0},
        )  # fmt: skip
        stats = answer["stats"]
        rows[device] = stats["rows"] / stats["passes"]
    assert rows["none"] <= 12  # the prompt's pass has some more
    assert rows["RPC0"] > 13
