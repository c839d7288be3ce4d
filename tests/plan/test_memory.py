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
from dflash_local.engine import Engine
from dflash_local.engine_options import EngineOptions
from dflash_local.plan.memory_plan import MemoryPlan
from tests.fast import some_fast
from tests.placement.bus import table_on
from tests.placement.worker import Worker
from tests.plan.allocated import OPTIONS, PROMPTS, check, compare

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
    "embeddings on a device": {"device": "RPC0", **table_on("RPC0")},
}  # fmt: skip
KINDS = ("attention", "hybrid", "moe")
# All places for experts; for the others where the pair is split.
FAST = [(kind, place) for kind in KINDS for place in PLACES if kind == "moe" or "split" in place]


@pytest.mark.parametrize(("kind", "place"), some_fast(product(KINDS, PLACES), FAST))
def test_allocated_as_planned(kind: str, place: str, worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Part by part, after answers to two prompts."""
    check(worker, pairs(kind), PLACES[place])


def test_next_token_layers(untrained_mtp: Path) -> None:
    """Their weights are the target's, their context and buffers the drafter's."""
    options: dict[str, Any] = OPTIONS | {"model": untrained_mtp}
    planned = MemoryPlan.of(EngineOptions(**options)).placement
    with Engine(**options) as engine:
        for prompt in PROMPTS:
            engine.generate(prompt, max_tokens=24, budget=4)
        compare(planned, engine.info["placement"])
    unused = MemoryPlan.of(EngineOptions(**options, draft_kind="lookup")).placement["CPU"]
    assert {"drafter_context", "drafter_compute"} == planned["CPU"].keys() - unused.keys()
    assert unused["target"] < planned["CPU"]["target"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dflash", "hybrid"])
def test_a_larger_shape(kind: str, worker: Worker, tmp_path: Path) -> None:
    """Quantized, with wider rows."""
    pair = inflate(bundled_pair(kind), tmp_path, shape_of("0.1b", kind), "q4_k_m")
    check(worker, pair, PLACES["split over two, the drafter on the first"])
