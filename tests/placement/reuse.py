"""How often graphs are used again, as tests of several kinds of devices ask it."""

from __future__ import annotations

from typing import Any

from dflash_local.demo.shapes import Pair
from dflash_local.stats import EngineStats
from tests.placement.worker import Worker

PROMPTS = [
    "Write a Python context manager that logs the size.\n",
    "Write an SQL query that selects every factor above 5 from the table prices.\n",
]
GOAL = 0.95
OPTIONS: dict[str, Any] = {"n_ctx": 2048, "n_slots": 1, "n_threads": 1, "cost_cache": False}


def on_device(device: str) -> dict[str, Any]:
    """Arguments of Engine: all of the pair on it."""
    return OPTIONS | {"device": device, "device_draft": device}


def check_steady_decoding(worker: Worker, pair: Pair, device: str) -> None:
    """Long answers, with trees of up to 12 nodes."""
    answer = worker.ask(
        on_device(device) | {"model": pair.target, "drafter": pair.drafter, "budget": 12}, PROMPTS, max_tokens=400,
        sampling={"temperature": 0, "ignore_eos": True},
    )  # fmt: skip
    assert "error" not in answer, answer
    stats = EngineStats.of(answer["stats"]) - EngineStats.of(answer["loaded"])
    assert sum(stats.graphs["target_decoding"]) > 60, "the answers were too short to say anything"
    assert stats.reuse()["target_decoding"] >= GOAL, (stats.graphs, stats.nodes)
    assert sum(stats.graphs["drafter"]) > 60
    assert stats.reuse()["drafter"] >= GOAL, (stats.graphs, stats.lengths)
