"""What a step moves between the host and a device: nothing that need not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local.demo.inflate import inflate
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import Pair, Shape
from tests.placement.worker import Worker

PROMPT = "Write an SQL query that selects every factor above 5 from the table prices.\n"
N = 40
FLOAT = 4
ON_DEVICE: dict[str, Any] = {
    "device": "RPC0", "device_draft": "RPC0", "n_ctx": 512, "n_slots": 1, "n_threads": 1, "warmup": False,
    "cost_cache": False, "budget": 12,
}  # fmt: skip


def run(worker: Worker, pair: Pair, **generate: Any) -> dict[str, Any]:
    options = ON_DEVICE | {"model": pair.target, "drafter": pair.drafter}
    answer = worker.ask(options, [PROMPT], max_tokens=N, **generate)
    assert "error" not in answer, answer
    return answer


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_taps_and_logits_stay(worker: Worker, pairs: Callable[[str], Pair], kind: str) -> None:
    """Greedy: of each row one token comes back, of each drafted place its candidates."""
    pair = pairs(kind)
    plain, drafted = run(worker, pair, draft="off"), run(worker, pair)
    assert drafted["texts"] == plain["texts"]
    assert drafted["stats"]["graphs_built_drafter"] > 0 and (drafted["accepted"] > 0 or kind == "hybrid")
    assert drafted["info"]["drafter"]["taps_on"] == "RPC0"
    for answer in (plain, drafted):
        target, steps = answer["info"]["target"], answer["stats"]["steps"]
        moved = {way: n / steps for way, n in answer["stats"]["moved_bytes"].items()}
        assert moved["to_device"] > 0
        assert moved["from_device"] < target["n_vocab"] * FLOAT / 2  # not one row of logits, nor taps
    width = len(drafted["info"]["drafter"]["target_layers"]) * target["n_embd"] * FLOAT
    assert drafted["stats"]["moved_bytes"]["from_device"] / steps < width


@pytest.mark.parametrize("sampling", [{"temperature": 1.0, "top_k": 40, "seed": 3}, {"temperature": 0.8, "seed": 4}])
def test_top_k_needs_no_rows(worker: Worker, pairs: Callable[[str], Pair], sampling: dict[str, Any]) -> None:
    """Default sampling begins with top-k 40: 64 logits of a row come back."""
    pair = pairs("attention")
    plain, drafted = (run(worker, pair, sampling=sampling, **more) for more in ({"draft": "off"}, {}))
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
    drafted = run(worker, pair, sampling=sampling)
    here = worker.ask(
        ON_DEVICE | {"model": pair.target, "drafter": pair.drafter, "device": "none", "device_draft": "none"},
        [PROMPT], max_tokens=N, sampling=sampling,
    )  # fmt: skip
    assert drafted["texts"] == here["texts"]
    assert set(here["stats"]["moved_bytes"].values()) == {0}


def steps_of(worker: Worker, options: dict[str, Any], prompts: list[str], n: int, **sampling: Any) -> dict[str, float]:
    """Bytes by direction of a step that decodes: of long answers, less those of one token, which are the prompts'
    passes."""
    sampling = {"temperature": 0, "ignore_eos": False} | sampling
    long, short = (worker.ask(options, prompts, max_tokens=most, sampling=sampling)["stats"] for most in (n, 1))
    steps = long["steps"] - short["steps"]
    return {way: (long["moved_bytes"][way] - short["moved_bytes"][way]) / steps for way in long["moved_bytes"]}


# Qwen3-8B's width, heads and drafter; what a step moves depends on neither layers nor feed-forward.
WIDE = Shape(6, 4096, 768, 32, 8, 4096, 2, 128)
LIMIT = 64 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_k": 40, "seed": 5}])
def test_an_8b_moves_little(worker: Worker, tmp_path: Path, sampling: dict[str, Any]) -> None:
    """16 nodes; what top-k sampling reads of the logits, 8 KB, counts too."""
    pair = inflate(bundled_pair("dflash"), tmp_path, WIDE, "q4_0")
    options = ON_DEVICE | {"model": pair.target, "drafter": pair.drafter, "budget": 16, "n_ctx": 1024}
    moved = steps_of(worker, options, [40 * PROMPT], 24, **sampling)
    assert moved["to_device"] + moved["from_device"] <= LIMIT, moved
    assert moved["between_devices"] == 0


@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_masks_grow_little(worker: Worker, pairs: Callable[[str], Pair], flash_attn: str) -> None:
    """1,500 cells more are 48 KB of mask for 16 rows of F16; they cost an eighth of a byte each, and once."""
    pair = pairs("attention")
    options = ON_DEVICE | {
        "model": pair.target, "drafter": pair.drafter, "budget": 16, "n_ctx": 2048, "flash_attn": flash_attn,
    }  # fmt: skip
    near, far = (steps_of(worker, options, [n * PROMPT], 40) for n in (2, 80))
    assert far["to_device"] - near["to_device"] < 6 * 1024
