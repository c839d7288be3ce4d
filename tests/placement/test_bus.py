"""What a step moves between the host and a device: nothing that need not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local.demo.shapes import Pair
from tests.fast import some_fast
from tests.placement.bus import (
    FLOAT,
    PROMPT,
    TABLES,
    TOP_K_32,
    N,
    a_small_one,
    an_8b,
    check_an_8b,
    check_taps_and_logits_stay,
    on_device,
    run,
    steps_of,
    table_on,
)
from tests.placement.worker import Worker

RPC = "RPC0"
TOP_K_40 = TOP_K_32 | {"top_k": 40}
# Besides "with the target": where the table's rows go on to another device, or to the CPU.
PLACES: dict[str, dict[str, Any]] = {
    "with the target": {},
    "the drafter elsewhere": {"device_draft": "RPC1"},
    "the target split": {"device": "RPC1,RPC0", "tensor_split": "1,1"},
    "the target on the CPU": {"n_gpu_layers": 0},
}


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_taps_and_logits_stay(worker: Worker, pairs: Callable[[str], Pair], kind: str) -> None:
    pair = pairs(kind)
    plain, drafted = run(worker, pair, RPC, draft="off"), run(worker, pair, RPC)
    assert drafted["texts"] == plain["texts"]
    assert drafted["stats"]["graphs_built_drafter"] > 0 and (drafted["accepted"] > 0 or kind == "hybrid")
    check_taps_and_logits_stay(plain, drafted, RPC)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0, "top_k": 40, "seed": 3},
        {"temperature": 0.8, "seed": 4},
        {"temperature": 1.0, "seed": 5, "ignore_eos": True},
        {"temperature": 0, "ignore_eos": True},
    ],
)
def test_top_k_needs_no_rows(worker: Worker, pairs: Callable[[str], Pair], sampling: dict[str, Any]) -> None:
    """Default sampling begins with top-k 40: 64 logits of a row come back, and what is banned leaves them."""
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
@pytest.mark.parametrize("sampling", [{}, TOP_K_40, TOP_K_32])
def test_an_8b_moves_little(worker: Worker, tmp_path: Path, sampling: dict[str, Any]) -> None:
    check_an_8b(worker, an_8b(tmp_path), RPC, 40 * PROMPT, sampling)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_with_its_embeddings_there_even_less(worker: Worker, tmp_path: Path, kind: str) -> None:
    """Numbers of tokens go up instead of rows, whatever the rows' type."""
    moved = check_an_8b(worker, an_8b(tmp_path, kind), RPC, 40 * PROMPT, TOP_K_32, **table_on(RPC))
    assert moved["to_device"] < 8 * 1024


@pytest.mark.slow
def test_pairs_of_32_candidates(worker: Worker, tmp_path: Path) -> None:
    """The scores of a DFlash 2 drafter's pairs, 15 * 32 * 32, come back as F16."""
    pair = an_8b(tmp_path, "Q8_0", candidates=32)
    moved = check_an_8b(worker, pair, RPC, 40 * PROMPT, TOP_K_32, **table_on(RPC))
    assert moved["from_device"] > 15 * 32 * 32 * 2


@pytest.mark.parametrize(
    ("kind", "place"),
    some_fast(
        [(kind, place) for kind in TABLES for place in PLACES],
        [("Q6_K", place) for place in PLACES] + [(kind, "with the target") for kind in TABLES],
    ),
)
def test_a_table_on_the_device_changes_no_text(worker: Worker, tmp_path: Path, kind: str, place: str) -> None:
    """Of target and drafter, which looks up there too."""
    pair = a_small_one(tmp_path, kind)
    options = on_device(RPC) | PLACES[place] | {"model": pair.target, "drafter": pair.drafter}
    here, there = (worker.ask(options | more, [PROMPT], max_tokens=N) for more in ({}, table_on(RPC)))
    assert there["texts"] == here["texts"]
    assert there["accepted"] == here["accepted"] > 0
    moved = there["stats"]["moved_bytes"]
    if place == "with the target":
        assert moved["to_device"] < here["stats"]["moved_bytes"]["to_device"]


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_masks_grow_little(worker: Worker, pairs: Callable[[str], Pair], flash_attn: str) -> None:
    """1,500 cells more are 48 KB of mask for 16 rows of F16; they cost an eighth of a byte each, and once."""
    pair = pairs("attention")
    options = on_device(RPC) | {
        "model": pair.target, "drafter": pair.drafter, "budget": 16, "n_ctx": 2048, "flash_attn": flash_attn,
    }  # fmt: skip
    near, far = (steps_of(worker, options, [n * PROMPT], 40) for n in (2, 80))
    assert far["to_device"] - near["to_device"] < 6 * 1024


def test_4096_cells_cost_little_more(worker: Worker, pairs: Callable[[str], Pair]) -> None:
    """Than the 640 with which an 8B is measured here: what a step moves for its context depends on no width."""
    pair = pairs("attention")
    options = on_device(RPC) | {"model": pair.target, "drafter": pair.drafter, "budget": 16, "n_ctx": 8192}
    near, far = (steps_of(worker, options, [n * PROMPT], 24, **TOP_K_32) for n in (40, 256))
    assert far["to_device"] - near["to_device"] < 3 * 1024
    assert far["from_device"] == near["from_device"]
