"""The estimate is within 3 % of what is then allocated, on every device."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dflash_local.demo.inflate import inflate
from dflash_local.demo.pocket import bundled_pair, shape_of
from dflash_local.demo.shapes import Pair
from tests.fast import some_fast
from tests.placement.worker import Worker

PROMPTS = ["Write an SQL query that selects every factor above 5 from the table prices.\n", "Count from 15.\n" * 20]
OPTIONS: dict[str, Any] = {
    "n_ctx": 2048, "n_slots": 2, "n_threads": 1, "warmup": False, "cost_cache": False,
    "mmap": False,  # what is mapped has gaps, which take nothing
}  # fmt: skip
PLACES: dict[str, dict[str, Any]] = {
    "one device": {"device": "RPC0"},
    "split over two, the drafter on the first": {
        "device": "RPC0,RPC1", "tensor_split": "1,1", "device_draft": "RPC0",
    },
    "half on the CPU, KV in q8_0": {
        "device": "RPC0", "n_gpu_layers": 4, "cache_type_k": "q8_0", "cache_type_v": "q8_0",
    },
    "experts on the CPU": {"device": "RPC0", "cpu_moe": True},
    "K/V on the host": {"device": "RPC0,RPC1", "kv_offload": False},
}  # fmt: skip
KINDS = ("attention", "hybrid", "moe")
# The host takes memory for passes when it needs it: a plan has the most that it can be.
AS_NEEDED = {"compute", "drafter_compute", "output"}
NEAR = 0.03


# All places for experts; for the others where the pair is split.
FAST = [(kind, place) for kind in KINDS for place in PLACES if kind == "moe" or "split" in place]


@pytest.mark.parametrize(("kind", "place"), some_fast(product(KINDS, PLACES), FAST))
def test_allocated_as_planned(kind: str, place: str, worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Part by part, after answers to two prompts."""
    check(worker, pairs(kind), PLACES[place])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dflash", "hybrid"])
def test_a_larger_shape(kind: str, worker: Worker, tmp_path: Path) -> None:
    """Quantized, with wider rows."""
    pair = inflate(bundled_pair(kind), tmp_path, shape_of("0.1b", kind), "q4_k_m")
    check(worker, pair, PLACES["split over two, the drafter on the first"])


def check(worker: Worker, pair: Pair, place: dict[str, Any]) -> None:
    """What is planned for a pair against what is allocated after two answers."""
    options = OPTIONS | place | {"model": pair.target, "drafter": pair.drafter}
    answer = worker.ask(options, PROMPTS, max_tokens=24, plan=True)
    assert "error" not in answer, answer
    planned, allocated = answer["planned"]["placement"], answer["info"]["placement"]
    assert planned.keys() == allocated.keys()
    for device, parts in allocated.items():
        fixed = parts.keys() - (AS_NEEDED if device == "CPU" else set())
        assert fixed == planned[device].keys() - (AS_NEEDED if device == "CPU" else set()), device
        for part in fixed:
            assert planned[device][part] == pytest.approx(parts[part], rel=NEAR), (device, part)
        for part in parts.keys() - fixed:
            assert parts[part] <= planned[device][part] * (1 + NEAR), (device, part)
