"""The target's K and V in q8_0 and q4_0: trees and chains are verified over them as over f16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.errors import RequestError
from dflash_local.sampling import SamplingParams
from tests.fast import some_fast

from .test_tokens import PROMPTS, chat

CACHES = [("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "q4_0"), ("f16", "q4_0")]
DRAFTS: list[dict[str, Any]] = [
    {"budget": 16, "draft": "tree"}, {"budget": 48, "draft": "tree"}, {"budget": 12, "draft": "chain"}, {},
]  # fmt: skip


def open_engine(pocket: dict[str, Path], kind: str, **options: Any) -> Engine:
    names = ("hybrid-target", "hybrid-dflash") if kind == "hybrid" else ("target", "dflash-small")
    target, drafter = (pocket[name] for name in names)
    return Engine(target, drafter, warmup=False, n_threads=2, cost_cache=False, **options)


@pytest.mark.parametrize(("k", "v"), some_fast(CACHES, CACHES[:2]))
@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_text(pocket: dict[str, Path], kind: str, k: str, v: str) -> None:
    """Drafted in chains and trees, alone and beside others, it is the plain text bit for bit."""
    n_accepted, shapes = 0, set()
    with open_engine(pocket, kind, n_ctx=2048, n_slots=2, cache_type_k=k, cache_type_v=v) as engine:
        if "do not run on this CPU" in engine.info["not_bit_exact"]:
            pytest.skip(engine.info["not_bit_exact"])
        for seed, text in enumerate(PROMPTS[:2]):
            prompt = chat(engine, text)
            for temperature in (0.0, 1.0):
                sampling = SamplingParams(temperature=temperature, seed=seed, ignore_eos=True)
                plain = engine.generate(prompt, sampling, draft="off", max_tokens=48).tokens
                for pair in (DRAFTS[:2], DRAFTS[2:]):
                    running = [engine.submit(prompt, sampling, max_tokens=48, **drafting) for drafting in pair]
                    for drafted, drafting in zip(running, pair, strict=True):
                        result = drafted.result()
                        assert result.tokens == plain, (drafting, temperature)
                        n_accepted += result.timings.draft_n_accepted
                        shapes.add(drafting.get("draft"))
    assert n_accepted > 100 and {"tree", "chain"} <= shapes


def test_context_is_smaller(pocket: dict[str, Path]) -> None:
    """34 and 18 bytes for 32 values in the place of 64."""
    sizes = {}
    for cache in ("f16", "q8_0", "q4_0"):
        with open_engine(pocket, "attention", n_ctx=2048, cache_type_k=cache, cache_type_v=cache) as engine:
            sizes[cache] = engine.info["memory"]["context"]
    assert sizes["q8_0"] == sizes["f16"] * 34 // 64 and sizes["q4_0"] == sizes["f16"] * 18 // 64


def test_refusals(pocket: dict[str, Path]) -> None:
    """What cannot be is said in one sentence before loading."""
    with pytest.raises(RequestError, match="type_v is 'q8_0', which needs flash attention: leave flash_attn on"):
        open_engine(pocket, "attention", n_ctx=512, cache_type_v="q8_0", flash_attn="off")
    with pytest.raises(RequestError, match="type_k_draft is 'q8_0', must be f16 or f32"):
        open_engine(pocket, "attention", n_ctx=512, cache_type_k_draft="q8_0")
    with open_engine(pocket, "attention", n_ctx=512, cache_type_k="q8_0", flash_attn="off") as engine:
        sampling = SamplingParams(temperature=0)
        plain = engine.generate("Count from 15.", sampling, draft="off", max_tokens=24).text
        assert engine.generate("Count from 15.", sampling, max_tokens=24).text == plain
