"""A plan for Vulkan is within 3 % of what the driver's device is then asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local.demo.inflate import inflate
from dflash_local.demo.pocket import bundled_pair, shape_of
from dflash_local.demo.shapes import Pair
from tests.placement.bus import table_on
from tests.placement.worker import Worker
from tests.plan.allocated import check

pytestmark = pytest.mark.slow

DEVICE = "Vulkan0"
PLACES: dict[str, dict[str, Any]] = {
    "all there": {},
    "half on the CPU, KV in q8_0": {"n_gpu_layers": 4, "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    "embeddings there too": table_on(DEVICE),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["attention", "hybrid", "moe"])
def test_allocated_as_planned(kind: str, place: str, worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Part by part, after answers to two prompts."""
    check(worker, pairs(kind), {"device": DEVICE} | PLACES[place])


def test_with_an_rpc_server(worker_of_two: Worker, pairs: Callable[[str], Pair]) -> None:
    check(worker_of_two, pairs("attention"), {"device": f"{DEVICE},RPC0", "tensor_split": "1,1"})


@pytest.mark.parametrize("kind", ["dflash", "hybrid"])
def test_a_larger_shape(kind: str, worker: Worker, tmp_path: Path) -> None:
    """Quantized, with wider rows."""
    pair = inflate(bundled_pair(kind), tmp_path, shape_of("0.1b", kind), "q4_k_m")
    check(worker, pair, {"device": DEVICE}, n=8)  # a pass takes seconds
