"""What a step moves between the host and a device: nothing that need not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local.demo.shapes import Pair
from tests.placement.bus import FLOAT, PROMPT, N, check_an_8b, check_taps_and_logits_stay, on_device, run, steps_of
from tests.placement.worker import Worker

RPC = "RPC0"


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_taps_and_logits_stay(worker: Worker, pairs: Callable[[str], Pair], kind: str) -> None:
    pair = pairs(kind)
    plain, drafted = run(worker, pair, RPC, draft="off"), run(worker, pair, RPC)
    assert drafted["texts"] == plain["texts"]
    assert drafted["stats"]["graphs_built_drafter"] > 0 and (drafted["accepted"] > 0 or kind == "hybrid")
    check_taps_and_logits_stay(plain, drafted, RPC)


@pytest.mark.parametrize("sampling", [{"temperature": 1.0, "top_k": 40, "seed": 3}, {"temperature": 0.8, "seed": 4}])
def test_top_k_needs_no_rows(worker: Worker, pairs: Callable[[str], Pair], sampling: dict[str, Any]) -> None:
    """Default sampling begins with top-k 40: 64 logits of a row come back."""
    pair = pairs("attention")
    plain, drafted = (run(worker, pair, RPC, sampling=sampling, **more) for more in ({"draft": "off"}, {}))
    assert drafted["texts"] == plain["texts"]
    n = plain["info"]["target"]["n_vocab"]
    assert plain["stats"]["moved_bytes"]["from_device"] / plain["stats"]["steps"] < n * FLOAT / 2


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0, "repeat_penalty": 1.3},
        {"temperature": 1.0, "top_k": 0, "seed": 3},
        {"temperature": 1.0, "top_k": 200, "seed": 3},
        {"temperature": 0, "grammar": 'root ::= "SELECT" [a-z ]+'},
    ],
)
def test_what_needs_whole_rows_gets_them(
    worker: Worker, pairs: Callable[[str], Pair], sampling: dict[str, Any]
) -> None:
    """Whatever the sampler looks at: the text is that of the host."""
    pair = pairs("attention")
    drafted = run(worker, pair, RPC, sampling=sampling)
    here = worker.ask(
        on_device("none") | {"model": pair.target, "drafter": pair.drafter},
        [PROMPT], max_tokens=N, sampling=sampling,
    )  # fmt: skip
    assert drafted["texts"] == here["texts"]
    assert set(here["stats"]["moved_bytes"].values()) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_k": 40, "seed": 5}])
def test_an_8b_moves_little(worker: Worker, tmp_path: Path, sampling: dict[str, Any]) -> None:
    check_an_8b(worker, tmp_path, RPC, 40 * PROMPT, sampling)


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_masks_grow_little(worker: Worker, pairs: Callable[[str], Pair], flash_attn: str) -> None:
    """1,500 cells more are 48 KB of mask for 16 rows of F16; they cost an eighth of a byte each, and once."""
    pair = pairs("attention")
    options = on_device(RPC) | {
        "model": pair.target, "drafter": pair.drafter, "budget": 16, "n_ctx": 2048, "flash_attn": flash_attn,
    }  # fmt: skip
    near, far = (steps_of(worker, options, [n * PROMPT], 40) for n in (2, 80))
    assert far["to_device"] - near["to_device"] < 6 * 1024
