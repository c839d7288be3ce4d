"""Probabilities of tokens: those of drafted tokens are plain decoding's, bit for bit, and both are what the logits
say.

References are numpy's softmax of the logits of a teacher-forced pass (`tree_pass`), and of the logits that
llama-cpp-python computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.drafter_choice import DFLASH, pass_times
from dflash_local import Engine
from dflash_local.engine import Completion, TokenProb, TreeRows
from dflash_local.errors import RequestError
from dflash_local.sampling import SamplingParams

from .test_bit_exact import open_engine
from .test_tokens import DIGITS, OPENINGS, PROMPTS, chat

N = 5
DRAFTS: dict[str, dict[str, Any]] = {
    "tree": {"budget": 32},
    "chain": {"budget": 16, "draft": "chain"},
    "automatic": {},
}


@pytest.fixture(scope="module", params=["", "hybrid-"])
def engine(
    request: pytest.FixtureRequest, pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """With given costs: whether drafting pays must not depend on what else the machine does."""
    target, drafter = pocket[f"{request.param}target"], pocket["hybrid-dflash" if request.param else "dflash2"]
    costs = tmp_path_factory.mktemp("costs") / "costs.json"
    pass_times([DFLASH]).write(costs)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DFLASH_FIXED_COSTS", "1")
        with open_engine(target, drafter, n_threads=2, n_slots=4, warmup=True, cost_cache=costs) as engine:
            assert engine.stats()["cost_source"] == "cache"
            yield engine


@pytest.fixture(scope="module")
def pure_engine(pocket: dict[str, Path]) -> Iterator[Engine]:
    with open_engine(pocket["target"], pocket["dflash2"], n_threads=2, n_slots=2) as engine:
        yield engine


def raw_rows(engine: Engine, tokens: Sequence[int]) -> np.ndarray:
    """Log-softmax of the logits after each of the tokens, [len(tokens), n_vocab], in double precision."""
    rows = []
    engine.slot_clear(0)
    for at in range(0, len(tokens), 32):
        chunk = tokens[at : at + 32]
        path = list(range(len(chunk)))
        (logits,) = engine.tree_pass([TreeRows(0, chunk, [i - 1 for i in path], path)])
        assert logits is not None
        rows.append(logits.astype(np.float64))
    engine.slot_clear(0)
    all_rows = np.concatenate(rows)
    largest = all_rows.max(axis=1, keepdims=True)
    return all_rows - largest - np.log(np.exp(all_rows - largest).sum(axis=1, keepdims=True))


def check_raw(engine: Engine, prompt: Sequence[int], done: Completion, n: int = N) -> None:
    assert done.probs is not None
    assert [prob.token for prob in done.probs] == done.tokens
    rows = raw_rows(engine, [*prompt, *done.tokens])[len(prompt) - 1 : -1]
    for prob, row in zip(done.probs, rows, strict=True):
        check_prob(prob, row, n)


def check_prob(prob: TokenProb, row: np.ndarray, n: int = N) -> None:
    assert prob.value == pytest.approx(row[prob.token], abs=2e-6)
    assert list(prob.top_tokens) == list(np.lexsort((np.arange(len(row)), -row))[:n])
    assert list(prob.top_values) == pytest.approx(row[prob.top_tokens], abs=2e-6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("shape", DRAFTS)
def test_drafted_tokens_have_plain_probabilities(engine: Engine, shape: str, temperature: float) -> None:
    accepted = 0
    for seed, prompt in enumerate([chat(engine, PROMPTS[0]), engine.tokenize(OPENINGS[0])]):
        options: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": 40, "n_probs": N}
        plain = engine.generate(prompt, draft="off", **options)
        drafted = engine.generate(prompt, **options, **DRAFTS[shape])
        assert drafted.tokens == plain.tokens
        assert drafted.probs == plain.probs
        check_raw(engine, prompt, drafted)
        accepted += drafted.timings.draft_n_accepted
    assert accepted > 0


@pytest.mark.parametrize(
    "sampler",
    [
        {"temperature": 0},
        {"temperature": 0, "repeat_penalty": 1.2},
        {"temperature": 0.8},
        {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"temperature": 1.0, "top_k": 0, "repeat_penalty": 1.3, "presence_penalty": 0.3},
        {"temperature": 1.0, "mirostat": 2},
        {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.1},
        {"temperature": 1.0, "grammar": DIGITS},
    ],
    ids=str,
)
def test_probabilities_after_sampling(pure_engine: Engine, sampler: dict[str, Any]) -> None:
    prompt = pure_engine.tokenize(OPENINGS[1])
    options: dict[str, Any] = {"seed": 3, "max_tokens": 30, "n_probs": N, "post_sampling_probs": True} | sampler
    plain = pure_engine.generate(prompt, draft="off", **options)
    drafted = pure_engine.generate(prompt, budget=16, **options)
    assert drafted.timings.draft_n > 0
    assert (drafted.tokens, drafted.probs) == (plain.tokens, plain.probs)
    assert plain.probs and [prob.token for prob in plain.probs] == plain.tokens
    for prob in plain.probs:
        values = list(prob.top_values)
        assert values == sorted(values, reverse=True) and values[-1] > 0 and sum(values) <= 1 + 1e-5
        assert len(values) == N or sum(values) == pytest.approx(1, abs=1e-5)
        if "grammar" not in sampler:  # which looks at the sample only when there is one
            assert prob.value > 0
        assert dict(prob.top).get(prob.token, prob.value) == prob.value
    if sampler == {"temperature": 0}:
        assert all(prob.value == 1 and prob.top == [(prob.token, 1)] for prob in plain.probs)


def test_probabilities_after_sampling_are_llama_cpps(pure_engine: Engine, pocket: dict[str, Path]) -> None:
    """What top-k, top-p and temperature leave of llama-cpp-python's logits of the same text."""
    import llama_cpp

    top_k, top_p, temperature = 12, 0.9, 0.7
    prompt = pure_engine.tokenize(OPENINGS[0])
    done = pure_engine.generate(
        prompt,
        SamplingParams(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=0.0,
            samplers=["top_k", "top_p", "temperature"], seed=1,
        ),
        max_tokens=24, n_probs=top_k, post_sampling_probs=True, budget=16,
    )  # fmt: skip
    assert done.probs and done.timings.draft_n_accepted > 0
    model = llama_cpp.Llama(str(pocket["target"]), n_ctx=512, n_threads=1, logits_all=True, verbose=False)
    model.eval([*prompt, *done.tokens])
    assert model._scores is not None
    logits = model._scores[len(prompt) - 1 : len(prompt) + len(done.tokens) - 1].astype(np.float64)
    for prob, row in zip(done.probs, logits, strict=True):
        best = np.argsort(-row)[:top_k]
        left = np.exp(row[best] - row[best[0]])
        kept = int(np.searchsorted(np.cumsum(left / left.sum()), top_p)) + 1
        expected = np.exp((row[best[:kept]] - row[best[0]]) / temperature)
        assert len(prob.top) == kept
        assert list(prob.top_values) == pytest.approx(expected / expected.sum(), abs=5e-3)
    model.close()


@pytest.mark.parametrize("post", [False, True])
def test_block_verification(pure_engine: Engine, post: bool) -> None:
    """Its text is another one: its probabilities are checked against the logits of that text."""
    prompt = chat(pure_engine, PROMPTS[0])
    options: dict[str, Any] = {"temperature": 0.9, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 5}
    done = pure_engine.generate(
        prompt, accept="block", budget=12, max_tokens=60, n_probs=N, post_sampling_probs=post, **options
    )
    assert done.timings.draft_n_accepted > 10
    if not post:
        check_raw(pure_engine, prompt, done)
        return
    rows = raw_rows(pure_engine, [*prompt, *done.tokens])[len(prompt) - 1 : -1]
    assert done.probs
    for prob, row in zip(done.probs, rows, strict=True):
        cooled = np.exp(row / 0.9 - (row / 0.9).max())
        cooled /= cooled.sum()
        assert prob.value == pytest.approx(cooled[prob.token], abs=1e-5)
        assert list(prob.top_values) == pytest.approx(cooled[prob.top_tokens], abs=1e-5)


def test_raw_probabilities_under_a_grammar(pure_engine: Engine) -> None:
    """A forbidden best token is told of all the same: the logits are the model's."""
    prompt = chat(pure_engine, PROMPTS[1])
    options: dict[str, Any] = {"temperature": 0, "grammar": DIGITS, "max_tokens": 40, "n_probs": N}
    plain, drafted = pure_engine.generate(prompt, draft="off", **options), pure_engine.generate(prompt, **options)
    assert drafted.probs == plain.probs
    check_raw(pure_engine, prompt, drafted)
    assert any(prob.top_tokens[0] != prob.token for prob in drafted.probs or [])


@pytest.mark.parametrize("draft", ["off", "tree"])
def test_tokens_that_are_cut_off(pure_engine: Engine, draft: Any) -> None:
    """At a stop string inside a pass, at the length limit, at the end of generation: one for each token that stays."""
    prompt = chat(pure_engine, PROMPTS[0])
    whole = pure_engine.generate(prompt, temperature=0, draft=draft, max_tokens=300, n_probs=1)
    assert whole.finish_reason == "stop" and whole.probs and whole.end_prob
    check_raw(pure_engine, prompt, whole, 1)
    assert whole.end_prob.token == pure_engine.info["eos_token"] == whole.end_prob.top_tokens[0]
    word = whole.text[len(whole.text) // 2 :][:6]
    options: list[dict[str, Any]] = [{"stop": [word], "max_tokens": 300}] + [{"max_tokens": n} for n in (1, 2, 7)]
    for cut in options:
        done = pure_engine.generate(prompt, temperature=0, draft=draft, n_probs=1, **cut)
        assert 0 < len(done.tokens) < len(whole.tokens)
        assert done.probs == whole.probs[: len(done.tokens)] and done.end_prob is None
    chunks = list(pure_engine.stream(prompt, temperature=0, draft=draft, n_probs=1, stop=[word]))
    assert all([prob.token for prob in chunk.probs or []] == chunk.tokens for chunk in chunks)


def test_prompts(engine: Engine) -> None:
    """Of the prompt's tokens, read in many passes beside slots that write; the rows that they need are read anew."""
    text = chat(engine, PROMPTS[0] + " " + PROMPTS[2] * 9)
    rows = raw_rows(engine, text)
    busy = [engine.submit(engine.tokenize(o), temperature_one(i), max_tokens=150) for i, o in enumerate(OPENINGS[:2])]
    for start, cached in ((1, 0), (len(text) - 20, 0), (1, 0), (3, 0)):
        done = engine.generate(text, max_tokens=0, n_probs=N, probs_from=start)
        assert [prob.token for prob in done.prompt_probs] == text[start:]
        for prob, row in zip(done.prompt_probs, rows[start - 1 :], strict=False):
            check_prob(prob, row)
        assert done.tokens == [] and done.probs == [] and done.finish_reason == "length"
        assert done.cached_tokens >= cached and done.cached_tokens < start
    assert all(len(answer.result().tokens) > 0 for answer in busy)


def test_a_prompt_does_not_hold_up_others(pure_engine: Engine) -> None:
    """Only so many of its rows fit a pass with logits: each of those passes writes a token of the other answer."""
    text = chat(pure_engine, PROMPTS[2] * 40)[:600]
    busy = pure_engine.submit(pure_engine.tokenize(OPENINGS[0]), temperature_one(1), max_tokens=500, budget=64)
    while not busy.n_tokens:
        pass
    before = busy.n_tokens
    done = pure_engine.generate(text, max_tokens=0, n_probs=1, probs_from=1)
    assert len(done.prompt_probs) == 599 and not busy.done
    assert busy.n_tokens - before >= 600 // 80
    busy.cancel()


def temperature_one(seed: int) -> SamplingParams:
    return SamplingParams(temperature=1.0, seed=seed, ignore_eos=True)


def test_a_prompt_and_its_answer(pure_engine: Engine) -> None:
    prompt = chat(pure_engine, PROMPTS[1])
    done = pure_engine.generate(prompt, temperature=0, max_tokens=12, n_probs=2, probs_from=1, cache_prompt=False)
    apart = pure_engine.generate(prompt, temperature=0, max_tokens=12, n_probs=2)
    assert done.probs == apart.probs and apart.prompt_probs == []
    assert len(done.prompt_probs) == len(prompt) - 1
    # Some of it is cached: what is wanted of it is read anew, and says the same.
    again = pure_engine.generate(prompt, temperature=0, max_tokens=12, n_probs=2, probs_from=len(prompt) - 4)
    assert again.cached_tokens > 0 and again.prompt_probs == done.prompt_probs[-4:]
    assert again.probs == apart.probs


def test_the_whole_vocabulary(pure_engine: Engine) -> None:
    done = pure_engine.generate(chat(pure_engine, PROMPTS[1]), temperature=0, max_tokens=3, n_probs=pure_engine.n_vocab)
    for prob in done.probs or []:
        assert sorted(prob.top_tokens) == list(range(pure_engine.n_vocab))
        assert np.exp(np.array(prob.top_values, np.float64)).sum() == pytest.approx(1, abs=1e-5)
        assert dict(prob.top)[prob.token] == prob.value


def test_nobody_asked(pure_engine: Engine) -> None:
    done = pure_engine.generate(chat(pure_engine, PROMPTS[1]), temperature=0, max_tokens=3)
    assert done.probs is None and done.prompt_probs == []


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"n_probs": -1}, "n_probs"),
        ({"n_probs": 10**6}, "n_probs"),
        ({"n_probs": True}, "n_probs"),
        ({"n_probs": 1, "probs_from": 99}, "probs_from"),
        ({"probs_from": 1}, "probs_from"),
        ({"n_probs": 1, "probs_from": 1, "post_sampling_probs": True}, "post_sampling_probs"),
    ],
    ids=str,
)
def test_refusals(pure_engine: Engine, options: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as refusal:
        pure_engine.generate([5, 6, 7], max_tokens=1, **options)
    assert refusal.value.param == param or param in refusal.value.message
