"""The pocket pair in f32: drafted decoding emits the tokens of plain decoding, greedily and for a seed, under every
sampler."""

from collections.abc import Sequence
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.engine import Completion

PROMPTS = [
    "Write a Python function that filters limits above 37.",
    "What is 457 + 868?",
    "Count from 15 in steps of 3, 14 numbers.",
    "List Ada, Ken and Radia as a Markdown table with their ages.",
    "What is the symbol of copper?",
    "Give me a JSON record for Grace, who is 44 and lives in Lisbon.",
]
# Beginnings that leave much open: answers differ from seed to seed, and many drafts are rejected.
OPENINGS = [
    "<|im_start|>user\n",
    "<|im_start|>user\nWrite a",
    "<|im_start|>user\nGive me a JSON record for",
    "<|im_start|>assistant\n",
    "```python\ndef",
]
BLOCK = 16
DIGITS = 'root ::= "[" number ("," " "? number)* "]"\nnumber ::= [0-9] [0-9]? [0-9]?'
SAMPLERS: dict[str, dict[str, Any]] = {
    "plain": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "defaults": {},
    "top-k": {"top_k": 5},
    "top-p": {"top_k": 0, "top_p": 0.7, "min_p": 0.0},
    "min-p": {"top_k": 0, "top_p": 1.0, "min_p": 0.2},
    "typical": {"typical_p": 0.6},
    "top-n-sigma": {"top_n_sigma": 1.0},
    "hot": {"temperature": 1.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "dynamic temperature": {"dynatemp_range": 0.7, "dynatemp_exponent": 1.3},
    "repeat penalty": {"repeat_penalty": 1.3, "repeat_last_n": 32},
    "frequency and presence": {"frequency_penalty": 0.6, "presence_penalty": 0.4},
    "dry": {"dry_multiplier": 0.9, "dry_allowed_length": 2, "dry_penalty_last_n": 128},
    "xtc": {"xtc_probability": 0.6, "xtc_threshold": 0.05},
    "adaptive": {"samplers": ["min_p", "temperature", "adaptive_p"], "adaptive_target": 0.4, "adaptive_decay": 0.8},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 3.0},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 3.0},
    "logit bias": {"logit_bias": [[15, 2.0], [20, -3.0], [11, False]]},
    "ignore end": {"ignore_eos": True},
    "grammar": {"grammar": DIGITS},
    "schema": {"json_schema": {"type": "object", "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}}}},
    "order": {"samplers": ["temperature", "top_k", "xtc", "min_p"], "xtc_probability": 0.3},
}


def chat(engine: Engine, text: str) -> list[int]:
    return engine.tokenize(engine.apply_chat({"messages": [{"role": "user", "content": text}]}).prompt)


def pair(engine: Engine, prompt: Sequence[int], budget: int = BLOCK, **options: Any) -> tuple[Completion, Completion]:
    """The plain and the drafted answer to one request."""
    return engine.generate(prompt, budget=1, **options), engine.generate(prompt, budget=budget, **options)


def assert_same(plain: Completion, drafted: Completion) -> None:
    assert drafted.tokens == plain.tokens
    assert drafted.text == plain.text
    assert drafted.finish_reason == plain.finish_reason


@pytest.mark.parametrize("budget", [2, 5, BLOCK])
def test_greedy(engine: Engine, budget: int) -> None:
    accepted = 0
    for text in PROMPTS:
        plain, drafted = pair(engine, chat(engine, text), budget, temperature=0, max_tokens=96)
        assert_same(plain, drafted)
        assert plain.timings.draft_n == 0
        accepted += drafted.timings.draft_n_accepted
    assert accepted > 0


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_same_text_for_the_same_seed(engine: Engine, sampler: str) -> None:
    assert_same_for_seeds(engine, range(1), {"max_tokens": 28} | SAMPLERS[sampler], OPENINGS[:3])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_same_text_for_many_seeds(engine: Engine, sampler: str) -> None:
    assert_same_for_seeds(engine, range(100, 110), {"max_tokens": 64} | SAMPLERS[sampler], OPENINGS)


@pytest.mark.parametrize("options", [{"top_p": 0.99}, {"top_k": 256, "samplers": "ktpi", "temperature": 1.5}])
def test_same_text_with_the_infill_sampler(engine: Engine, options: dict[str, Any]) -> None:
    """It takes the likeliest token, or ends the text, almost everywhere: seeds make hardly a difference."""
    options = {"samplers": "kpi", "max_tokens": 64} | options
    assert_same_for_seeds(engine, range(3), options, OPENINGS, least_varied=0)


def assert_same_for_seeds(
    engine: Engine, seeds: range, options: dict[str, Any], openings: Sequence[str], *, least_varied: float = 0.5
) -> None:
    texts, accepted = set(), 0
    for seed in seeds:
        for opening in openings:
            plain, drafted = pair(engine, engine.tokenize(opening), seed=seed, **{"temperature": 1.0} | options)
            assert_same(plain, drafted)
            texts.add(plain.text)
            accepted += drafted.timings.draft_n_accepted
    assert accepted > 0
    assert len(texts) > len(seeds) * len(openings) * least_varied, (
        "seeds make no difference: the comparison says little"
    )


def test_every_length_limit(engine: Engine) -> None:
    """An answer cut inside a block is the beginning of the whole answer."""
    prompt = chat(engine, PROMPTS[0])
    whole = engine.generate(prompt, budget=1, temperature=0, max_tokens=40)
    for limit in range(1, 2 * BLOCK + 3):
        cut = engine.generate(prompt, budget=BLOCK, temperature=0, max_tokens=limit)
        assert (cut.tokens, cut.finish_reason) == (whole.tokens[:limit], "length")


def test_stop_string_inside_a_block(engine: Engine) -> None:
    plain, drafted = pair(engine, chat(engine, PROMPTS[0]), temperature=0, max_tokens=96, stop=["return ["])
    assert drafted.text == plain.text
    assert drafted.finish_reason == plain.finish_reason == "stop"
    assert plain.text.endswith("    ")


def test_conversation_with_a_cached_prompt(engine: Engine) -> None:
    """The second turn reuses the first turn's cache, drafter state included; so does a return to the first turn."""
    messages = [{"role": "user", "content": PROMPTS[1]}]
    fresh: dict[int, Completion] = {}
    for turn in (1, 2, 1, 2):
        if turn == 2:
            follow_up = {"role": "user", "content": PROMPTS[2]}
            messages = [messages[0], {"role": "assistant", "content": fresh[1].text}, follow_up]
        prompt = engine.tokenize(engine.apply_chat({"messages": messages[: 2 * turn - 1]}).prompt)
        drafted = engine.generate(prompt, budget=BLOCK, temperature=0, max_tokens=96)
        plain = engine.generate(prompt, budget=1, temperature=0, max_tokens=96, cache_prompt=False)
        assert_same(plain, drafted)
        fresh.setdefault(turn, plain)
