"""What a model's graph decides by the context and its slots must not change what the model says: sparse attention that
needs a cache for each sequence, factors of LongRoPE that depend on how long a text may become."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.convert.gguf_metadata import read_metadata, string, u32
from dflash_local.engine import Engine
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import RequestError
from dflash_local.plan.fit import fit
from tests.gguf_files import rewritten
from tests.trees import models

Make = Callable[..., Path]


def best_logits(target: Path, n_tokens: int, width: int = 1, **options: Any) -> np.ndarray:
    """Of the second half of a random text, in passes of `width` rows; all slots hold texts of their own."""
    rng = random.Random(3)
    text = [rng.randrange(models.N_VOCAB) for _ in range(n_tokens)]
    with Engine(target, None, n_threads=1, warmup=False, **options) as engine:
        for slot in range(engine.n_slots):
            engine.generate(text[slot + 1 : slot + 20], max_tokens=3, id_slot=slot, temperature=0)
        return np.asarray(engine.score(text, n_tokens // 2, width=width).best_logit)


@pytest.fixture(scope="module")
def minimax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A block of 16 positions and the one before: a text of 200 is read sparsely."""
    return models.write("minimax-m3", tmp_path_factory.mktemp("minimax") / "m.gguf")


def test_sparse_attention_runs_with_any_slots(minimax: Path) -> None:
    """As with one slot and a cache of its own; by passes of one row and of several; unlike dense attention, which is
    what llama.cpp falls back to where sequences share a cache, and without flash attention."""
    sparse = best_logits(minimax, 200, n_ctx=256, n_slots=1, kv_unified=False)
    dense = best_logits(minimax, 200, n_ctx=256, n_slots=1, flash_attn="off")
    assert np.abs(sparse - dense).max() > 1e-3
    cases: list[dict[str, Any]] = [
        {"n_slots": 1, "n_ctx": 256},
        {"n_slots": 3, "n_ctx": 3 * 256},
        {"n_slots": 3, "n_ctx": 3 * 256, "kv_unified": True},
        {"n_slots": 2, "n_ctx": 2 * 256, "kv_unified": False},
        {"n_slots": -1, "n_ctx": 4 * 256},
    ]
    for options in cases:
        for width in (1, 3):
            np.testing.assert_array_equal(best_logits(minimax, 200, width, **options), sparse, str(options))


def test_slots_that_cannot_share_the_context_are_told(minimax: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Engine(minimax, None, n_ctx=1024, n_slots=-1, warmup=False) as engine:
        assert (engine.info["ctx_shared"], engine.info["kv_unified"], engine.n_ctx_slot) == (False, False, 256)
    assert "slots do not share the context: the sparse attention of minimax-m3" in caplog.text
    planned = fit(EngineOptions(minimax, n_slots=-1, n_ctx=1024, fit_target="0"), {"CUDA0": 1 << 30})
    assert planned.plan.facts["n_ctx_slot"] == 256 and not planned.options.share_ctx


@pytest.fixture(scope="module")
def longrope(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with factors for texts of at most 256 tokens, and for longer ones."""
    folder = tmp_path_factory.mktemp("longrope")
    plain = models.write("llama", folder / "plain.gguf")
    n_pairs = read_metadata(plain)["llama.rope.dimension_count"].data // 2
    factors = {
        f"rope_factors_{name}.weight": np.full(n_pairs, factor, np.float32)
        for name, factor in (("long", 8.0), ("short", 1.0))
    }
    key = "llama.rope.scaling"
    keys = {f"{key}.type": string("longrope"), f"{key}.original_context_length": u32(256)}
    return rewritten(plain, folder / "m.gguf", keys, factors)


def test_factors_of_longrope_are_those_of_a_slot(longrope: Path) -> None:
    """As in llama-server, whose slots have a part of the context each, or all of it (-kvu)."""
    short = best_logits(longrope, 200, n_ctx=256, n_slots=1)
    long = best_logits(longrope, 200, n_ctx=1024, n_slots=1)
    assert np.abs(short - long).max() > 1e-3
    for kv_unified in (None, False):
        found = best_logits(longrope, 200, n_ctx=1024, n_slots=4, kv_unified=kv_unified)
        np.testing.assert_array_equal(found, short)
    np.testing.assert_array_equal(best_logits(longrope, 200, n_ctx=1024, n_slots=4, kv_unified=True), long)
    limited = best_logits(longrope, 200, n_ctx=1024, n_slots=4, kv_unified=True, n_ctx_slot=256)
    np.testing.assert_array_equal(limited, short)


def test_a_slot_saved_with_other_factors_is_refused(longrope: Path, tmp_path: Path) -> None:
    """K is turned already: the context decides by which factors."""

    def opened(**options: Any) -> Engine:
        return Engine(longrope, n_threads=1, warmup=False, **options)

    with opened(n_ctx=256, n_slots=1) as engine:
        engine.generate(list(range(10, 110)), max_tokens=4, temperature=0, id_slot=0)
        engine.save_slot(0, tmp_path / "slot")
    with opened(n_ctx=1024, n_slots=1) as longer, pytest.raises(RequestError, match="other rotation factors"):
        longer.restore_slot(0, tmp_path / "slot")
    with opened(n_ctx=1024, n_slots=4) as wider:
        assert wider.restore_slot(2, tmp_path / "slot").n_tokens == 103
