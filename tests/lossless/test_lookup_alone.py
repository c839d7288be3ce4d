"""Prompt lookup without a drafter: a conversation that repeats itself takes fewer passes and says what plain decoding
says, whatever the target's memory. Where nothing can be quoted, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine, SamplingParams

from .test_tokens import PROMPTS, assert_same

LIMIT = 64


@pytest.fixture(scope="module", params=["target", "hybrid-target"])
def engine(pocket: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(pocket[request.param], n_ctx=2048, n_slots=2, n_threads=1, warmup=False, bit_exact=True) as engine:
        yield engine


def asked_again(engine: Engine, question: str) -> list[int]:
    """A conversation whose last question was asked and answered before."""
    message = {"role": "user", "content": question}
    answer = engine.chat([message], temperature=0, max_tokens=LIMIT, budget=1).text
    turns = [message, {"role": "assistant", "content": answer}, message]
    return engine.tokenize(engine.apply_chat({"messages": turns}).prompt)


def test_quotations_save_passes(engine: Engine) -> None:
    plain_n = quoting_n = accepted = 0
    for question in PROMPTS:
        prompt = asked_again(engine, question)
        plain, quoting = (engine.generate(prompt, temperature=0, max_tokens=LIMIT, budget=n) for n in (1, 8))
        assert_same(plain, quoting)
        assert plain.timings.lookup_n == 0 and quoting.timings.draft_n == quoting.timings.lookup_n
        assert quoting.timings.n_drafter_passes == 0
        plain_n, quoting_n = plain_n + plain.timings.n_passes, quoting_n + quoting.timings.n_passes
        accepted += quoting.timings.lookup_n_accepted
    assert accepted > 0 and quoting_n < 0.7 * plain_n


@pytest.mark.parametrize("sampling", [{"temperature": 1.0}, {"temperature": 0.7, "repeat_penalty": 1.3}], ids=str)
def test_same_text_for_the_same_seed(engine: Engine, sampling: dict[str, Any]) -> None:
    drafted = 0
    for seed, question in enumerate(PROMPTS):
        prompt = asked_again(engine, question)
        plain, quoting = (
            engine.generate(prompt, max_tokens=LIMIT, seed=seed, budget=n, **sampling) for n in (1, "auto")
        )
        assert_same(plain, quoting)
        drafted += quoting.timings.lookup_n
    assert drafted > 0


def test_slots_quote_their_own_texts(engine: Engine) -> None:
    prompts = [asked_again(engine, question) for question in PROMPTS[:2]]
    alone = [engine.generate(prompt, temperature=0, max_tokens=LIMIT, budget=1) for prompt in prompts]
    running = [engine.submit(prompt, SamplingParams(temperature=0), max_tokens=LIMIT, budget=8) for prompt in prompts]
    for plain, generation in zip(alone, running, strict=True):
        assert_same(plain, generation.result())


def test_what_a_step_says_of_it(engine: Engine) -> None:
    prompt = asked_again(engine, PROMPTS[0])
    done = engine.generate(prompt, temperature=0, max_tokens=LIMIT, trace=True, budget=8)
    reasons = {step.reason for step in done.steps}
    assert "prompt lookup alone" in reasons and reasons <= {"prompt lookup alone", "no drafter"}
    for step in done.steps:
        assert step.n_denoised == 0 and (step.n_nodes == 1 or step.reason == "prompt lookup alone")


def test_it_can_be_left_out(engine: Engine, pocket: dict[str, Path]) -> None:
    prompt = asked_again(engine, PROMPTS[0])
    off = engine.generate(prompt, temperature=0, max_tokens=LIMIT, lookup=False, budget=8)
    assert off.timings.draft_n == 0 and off.timings.reason == "no drafter"
    with Engine(pocket["hybrid-target"], n_ctx=256, n_threads=1, warmup=False, lookup=False) as without:
        assert without.info["tape_rows"] == 0  # memory that only drafts need
