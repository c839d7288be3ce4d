"""Engines on Vulkan: what they answer, what is where, and several of them in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import Pair
from tests.devices.tolerance import off, parted
from tests.placement import bus
from tests.placement.combinations import PROMPTS
from tests.placement.reuse import check_steady_decoding
from tests.placement.worker import Worker

DEVICE = "Vulkan0"
OPTIONS: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "cost_cache": False}
FEW = 10  # tokens of an 8B, where a pass takes seconds

pytestmark = pytest.mark.slow


def ask(worker: Worker, options: dict[str, Any], **generate: Any) -> dict[str, Any]:
    answer = worker.ask(OPTIONS | options, PROMPTS, max_tokens=32, **generate)
    assert "error" not in answer, answer
    return answer


@pytest.mark.parametrize("drafter", ["dflash", "hybrid", "dflash2", "dspark"])
def test_drafts_change_no_text(worker: Worker, drafter: str) -> None:
    """The bundled pairs as `serve -ngl 99` takes them. Half-precision weights and K/V: what is allowed is measured, as
    `make gpu-proof` does it."""
    pair = bundled_pair(drafter)
    options = {"model": pair.target, "drafter": pair.drafter, "n_gpu_layers": 99}
    plain = ask(worker, options, draft="off")
    drafted = ask(worker, options, budget=16, score=plain["answers"])
    assert drafted["devices"] == [DEVICE]
    assert drafted["accepted"] > 0
    placement = drafted["info"]["placement"][DEVICE]
    assert all(placement[part] for part in ("target", "context", "drafter", "drafter_context")), placement
    if others := parted(plain["answers"], drafted["answers"]):
        allowed = 2 * off(drafted["logits"], drafted["logits"])
        assert max(ask(worker, options, compare=others)["gaps"]) <= allowed


def test_engines_one_after_another(worker: Worker) -> None:
    """Of one process: on the host, where the drafter is then too; on the device; on the host again."""
    pair = bundled_pair("dflash")
    options = {"model": pair.target, "drafter": pair.drafter}
    first, device, last = (ask(worker, options | {"n_gpu_layers": n}, budget=16) for n in (0, 99, 0))
    assert first["texts"] == last["texts"]
    assert first["info"]["placement"].get(DEVICE, {}).get("drafter", 0) == 0
    assert device["info"]["placement"][DEVICE]["target"] > 0
    assert device["accepted"] > 0


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_taps_and_logits_stay(worker: Worker, pairs: Callable[[str], Pair], kind: str) -> None:
    plain, drafted = (bus.run(worker, pairs(kind), DEVICE, **more) for more in ({"draft": "off"}, {}))
    bus.check_taps_and_logits_stay(plain, drafted, DEVICE)


def test_an_8b_moves_little(worker: Worker, tmp_path: Path) -> None:
    """A short prompt: here a long one takes ten minutes. What masks add is measured on RPC servers."""
    bus.check_an_8b(worker, bus.an_8b(tmp_path), DEVICE, bus.PROMPT, {}, FEW)


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_steady_decoding_reuses_graphs(worker: Worker, pairs: Callable[[str], Pair], kind: str) -> None:
    check_steady_decoding(worker, pairs(kind), DEVICE)


def test_with_its_embeddings_there_even_less(worker: Worker, tmp_path: Path) -> None:
    """Other types than Q4_0 are tried with a small pair, below, and with an 8B on RPC servers."""
    pair = bus.an_8b(tmp_path)
    moved = bus.check_an_8b(worker, pair, DEVICE, bus.PROMPT, bus.TOP_K_32, FEW, **bus.table_on(DEVICE))
    assert moved["to_device"] < 8 * 1024


@pytest.mark.parametrize("kind", bus.TABLES)
def test_embeddings_there_change_no_text(worker: Worker, tmp_path: Path, kind: str) -> None:
    """Of target and drafter: the same shader makes floats of the rows, wherever they were."""
    pair = bus.a_small_one(tmp_path, kind)
    options = bus.on_device(DEVICE) | {"model": pair.target, "drafter": pair.drafter}
    here, there = (ask(worker, options | more) for more in ({}, bus.table_on(DEVICE)))
    assert there["texts"] == here["texts"]
    assert there["accepted"] == here["accepted"] > 0
    assert there["stats"]["moved_bytes"]["to_device"] < here["stats"]["moved_bytes"]["to_device"]
