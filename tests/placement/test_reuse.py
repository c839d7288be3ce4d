"""Graphs are used again: on devices passes are padded to few widths."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dflash_local.demo.shapes import Pair
from tests.placement.reuse import PROMPTS, check_steady_decoding, on_device
from tests.placement.worker import Worker


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_steady_decoding_reuses_graphs(worker: Worker, pairs: Callable[[str], Pair], kind: str) -> None:
    check_steady_decoding(worker, pairs(kind), "RPC0")


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
