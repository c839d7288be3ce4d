"""How often graphs are used again, as tests of several kinds of devices ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pass_times import PassTimes
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


def decode(worker: Worker, pair: Pair, device: str, n: int = 400, **options: Any) -> EngineStats:
    """Of answers of n tokens."""
    answer = worker.ask(
        on_device(device) | {"model": pair.target, "drafter": pair.drafter} | options, PROMPTS, max_tokens=n,
        sampling={"temperature": 0, "ignore_eos": True},
    )  # fmt: skip
    assert "error" not in answer, answer
    return EngineStats.of(answer["stats"]) - EngineStats.of(answer["loaded"])


def write_costs(path: Path) -> Path:
    """A cost file of a device whose passes are bound by reading weights, as a GPU's are: a row more costs little, and a
    new graph a fifth of a pass. The tests' own devices are this machine's cores, whose times say nothing of that."""
    verify = {rows: 20 + 0.05 * rows for rows in (1, 2, 4, 8, 16, 32, 64)}
    return PassTimes(verify, [{4: 2.0, 8: 2.0, 16: 2.0}], rebuild_ms=4.0).write(path)


def check_steady_decoding(worker: Worker, pair: Pair, device: str) -> None:
    """Long answers, with trees of up to 12 nodes."""
    stats = decode(worker, pair, device, budget=12)
    assert sum(stats.graphs["target_decoding"]) > 60, "the answers were too short to say anything"
    assert stats.reuse()["target_decoding"] >= GOAL, (stats.graphs, stats.nodes)
    assert sum(stats.graphs["drafter"]) > 60
    assert stats.reuse()["drafter"] >= GOAL, (stats.graphs, stats.lengths)
