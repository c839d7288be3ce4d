"""Prompt lookup without a drafter: a conversation that repeats itself takes fewer passes and says what plain decoding
says, whatever the target's memory. Where nothing can be quoted, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine, SamplingParams
from dflash_local.draft_options import Budget

from .test_tokens import PROMPTS, assert_same

LIMIT = 64


@pytest.fixture(scope="module", params=["target", "hybrid-target"])
def target(pocket: dict[str, Path], request: pytest.FixtureRequest) -> Path:
    return pocket[request.param]


@pytest.fixture(scope="module")
def engine(target: Path) -> Iterator[Engine]:
    with Engine(target, n_ctx=2048, n_slots=2, n_threads=1, warmup=False, bit_exact=True) as engine:
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
    budgets: list[Budget] = [1, "auto", 8]
    for seed, question in enumerate(PROMPTS):
        prompt = asked_again(engine, question)
        plain, *quoting = (engine.generate(prompt, max_tokens=LIMIT, seed=seed, budget=n, **sampling) for n in budgets)
        for done in quoting:
            assert_same(plain, done)
        drafted += quoting[-1].timings.lookup_n  # auto may find that nothing pays
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
        assert "leave --lookup on" in without.info["no_draft"]
    assert engine.info["no_draft"] == ""


def answers_in(folder: Path, engine: Engine, questions: list[str]) -> Path:
    """A file with the answers to these questions, among other text."""
    texts = [
        engine.chat([{"role": "user", "content": question}], temperature=0, max_tokens=LIMIT, budget=1).text
        for question in questions
    ]
    file = folder / "answers.txt"
    file.write_text("Something else.\n\n" + "\n\n".join(texts) + "\n\nThe end.\n", encoding="utf-8")
    return file


def test_files_are_quoted(engine: Engine, target: Path, tmp_path: Path) -> None:
    file = answers_in(tmp_path, engine, PROMPTS)
    accepted = plain_n = quoting_n = 0
    with Engine(
        target, n_ctx=2048, n_threads=1, warmup=False, bit_exact=True, lookup_corpus=[file], cache_ram=0
    ) as reader:
        for seed, question in enumerate(PROMPTS):
            prompt = reader.tokenize(reader.apply_chat({"messages": [{"role": "user", "content": question}]}).prompt)
            for sampling in ({"temperature": 0}, {"temperature": 1.0, "seed": seed}):
                plain, quoting = (reader.generate(prompt, max_tokens=LIMIT, budget=n, **sampling) for n in (1, 8))
                assert_same(plain, quoting)
                timings = quoting.timings
                assert timings.lookup_n >= timings.corpus_n >= timings.corpus_n_accepted and timings.answers_n == 0
                accepted += timings.corpus_n_accepted
                plain_n, quoting_n = plain_n + plain.timings.n_passes, quoting_n + timings.n_passes
            off = reader.generate(prompt, temperature=0, max_tokens=LIMIT, budget=8, lookup=False)
            assert off.timings.corpus_n == 0
        corpus = reader.stats()["lookup"]["corpus"]
        assert corpus["bytes"] >= 8 * corpus["tokens"] > 0
    assert accepted > 0 and quoting_n < plain_n


def test_earlier_answers_are_quoted_for_their_owner_alone(target: Path) -> None:
    others = again = first_n = again_n = 0
    with Engine(
        target, n_ctx=2048, n_threads=1, warmup=False, bit_exact=True, lookup_answers=4096, cache_ram=0
    ) as server:
        for question in PROMPTS:
            prompt = server.tokenize(server.apply_chat({"messages": [{"role": "user", "content": question}]}).prompt)
            ask: dict[str, Any] = {"temperature": 0, "max_tokens": LIMIT, "budget": 8, "cache_prompt": False}
            first, foreign, second = (server.generate(prompt, **ask, lookup_owner=owner) for owner in (1, 2, 1))
            assert_same(first, foreign)
            assert_same(first, second)
            others += foreign.timings.answers_n_accepted
            again += second.timings.answers_n_accepted
            first_n, again_n = first_n + first.timings.n_passes, again_n + second.timings.n_passes
        kept = server.stats()["lookup"]["answers"]
        assert 0 < kept["tokens"] <= 2 * 4096 and kept["bytes"] > 4 * kept["tokens"]
    # Owner 2 has its own answers to the other questions, but each of these answers only once.
    assert again > 4 * others and again_n < 0.5 * first_n


def test_nothing_of_another_owner_is_drafted(target: Path) -> None:
    with Engine(target, n_ctx=1024, n_threads=1, warmup=False, lookup_answers=4096, cache_ram=0) as server:
        prompt = server.tokenize(server.apply_chat({"messages": [{"role": "user", "content": PROMPTS[0]}]}).prompt)
        ask: dict[str, Any] = {"temperature": 0, "max_tokens": LIMIT, "budget": 8, "cache_prompt": False}
        server.generate(prompt, **ask, lookup_owner=1)
        assert server.generate(prompt, **ask, lookup_owner=2).timings.answers_n == 0
        assert server.generate(prompt, **ask, lookup_owner=1).timings.answers_n_accepted > 0
        unseen = server.generate(prompt, **ask, lookup_owner=3, lookup=False)  # neither quotes nor is kept
        assert unseen.timings.lookup_n == 0
        assert server.generate(prompt, **ask, lookup_owner=3).timings.answers_n == 0
