"""Without flash attention too a row's logits are the same bits in every pass, and drafted text is plain text
(test_bit_exact.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local import Engine
from dflash_local.sampling import SamplingParams
from tests.trees import models

from .test_tokens import PROMPTS, chat


def open_engine(target: Path, drafter: Path | None, **options: Any) -> Engine:
    with Engine(target, drafter, n_ctx=1024, warmup=False, flash_attn="on") as engine:
        reason = engine.info["not_bit_exact"]
    if reason and ("do not run on this CPU" in reason or "no row-invariant kernel" in reason):
        pytest.skip(reason)
    return Engine(target, drafter, n_ctx=1024, warmup=False, flash_attn="off", **options)


@pytest.mark.parametrize(
    ("name", "cache"), [("llama", "f16"), ("qwen3", "f32"), ("qwen3-wide", "f16"), ("qwen3moe", "f16"), ("mpt", "f16")]
)
def test_rows(name: str, cache: str, tmp_path: Path) -> None:
    """Logits of the same tokens in passes of 1 to 29 rows, with 1 and 3 threads."""
    path, rows = models.write(name, tmp_path / "model.gguf"), []
    tokens = [i * 7 % 120 for i in range(300)]
    for threads in (1, 3):
        with open_engine(path, None, n_threads=threads, cache_type_k=cache, cache_type_v=cache) as engine:
            rows += [engine.score(tokens, 270, width).logit for width in (1, 2, 5, 8, 16, 29)]
    for other in rows[1:]:
        np.testing.assert_array_equal(rows[0], other)


def test_trees(pocket: dict[str, Path]) -> None:
    """Text of trees, of which only parts are accepted, against plain text, at temperatures 0 and 1."""
    with open_engine(pocket["target"], pocket["dflash-small"], n_threads=2) as engine:
        prompt = chat(engine, PROMPTS[0])
        for temperature in (0.0, 1.0):
            sampling = SamplingParams(temperature=temperature, seed=3, ignore_eos=True)
            plain = engine.generate(prompt, sampling, draft="off", max_tokens=60).tokens
            for budget in (5, 32):
                assert engine.generate(prompt, sampling, budget=budget, max_tokens=60).tokens == plain
