"""Predicted outputs: the text is plain decoding's with any prediction, and takes far fewer passes with a good one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drafter_choice import DFLASH, pass_times
from dflash_local import Engine
from dflash_local.engine import Completion
from dflash_local.errors import RequestError
from dflash_local.sampling import SamplingParams
from tests.fast import some_fast

from .test_bit_exact import open_engine
from .test_tokens import PROMPTS, chat

N = 200


@pytest.fixture(scope="module", params=["dflash2", "hybrid-dflash", "none"])
def engine(
    request: pytest.FixtureRequest, pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """With given costs: how many rows pay must not depend on what else the machine does."""
    target = pocket["hybrid-target" if "hybrid" in request.param else "target"]
    drafter = None if request.param == "none" else pocket[request.param]
    costs = tmp_path_factory.mktemp("costs") / "costs.json"
    pass_times([] if drafter is None else [DFLASH]).write(costs)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DFLASH_FIXED_COSTS", "1")
        with open_engine(target, drafter, n_threads=2, n_slots=2, warmup=True, cost_cache=costs) as engine:
            assert engine.stats()["cost_source"] == "cache"
            yield engine


def sampling(temperature: float = 0.0, seed: int = 1) -> SamplingParams:
    return SamplingParams(temperature=temperature, seed=seed, ignore_eos=True)


def edited(tokens: list[int], rng: random.Random, n_edits: int = 8) -> list[int]:
    """Some tokens replaced, some pieces left out, some put in."""
    text = list(tokens)
    for _ in range(n_edits):
        at = rng.randrange(len(text) - 8)
        match rng.randrange(3):
            case 0:
                text[at] = 5
            case 1:
                del text[at : at + rng.randint(1, 6)]
            case 2:
                text[at:at] = [rng.randrange(300, 900) for _ in range(rng.randint(1, 6))]
    return text


def check_same(plain: Completion, predicted: Completion, prediction: list[int]) -> None:
    assert (predicted.tokens, predicted.text) == (plain.tokens, plain.text)
    assert predicted.timings.prediction_n == len(prediction)
    assert 0 <= predicted.timings.prediction_n_accepted <= len(prediction)


@pytest.mark.parametrize("n_prompts", some_fast((1, 2), (1,)))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_same_text(engine: Engine, temperature: float, n_prompts: int) -> None:
    for seed, text in enumerate(PROMPTS[:n_prompts]):
        prompt, rng = chat(engine, text), random.Random(seed)
        plain = engine.generate(prompt, sampling(temperature, seed), max_tokens=N, draft="off")
        for prediction in (plain.tokens, edited(plain.tokens, rng), plain.tokens[50:], edited(plain.tokens, rng, 60)):
            predicted = engine.generate(prompt, sampling(temperature, seed), max_tokens=N, prediction=prediction)
            check_same(plain, predicted, prediction)


def test_a_good_prediction_saves_passes(engine: Engine) -> None:
    """Each pass has as many rows as the tree may have; a hybrid's has fewer. Until an engine has seen how good
    predictions are, some rows are the drafter's branches."""
    prompt = chat(engine, PROMPTS[0])
    plain = engine.generate(prompt, sampling(), max_tokens=N, draft="off")
    most = engine.info.get("tape_rows", 64)
    whole = engine.generate(prompt, sampling(), max_tokens=N, prediction=plain.tokens, budget=most)
    check_same(plain, whole, plain.tokens)
    assert whole.timings.prediction_n_accepted == N
    assert whole.timings.n_passes <= N // (most - 1) + 3
    prediction = edited(plain.tokens, random.Random(1))
    close = engine.generate(prompt, sampling(), max_tokens=N, prediction=prediction, budget=most)
    check_same(plain, close, prediction)
    assert close.timings.n_passes < 0.3 * plain.timings.n_passes
    assert close.timings.prediction_n_accepted > 0.75 * N


def test_a_bad_prediction(engine: Engine) -> None:
    prompt, nonsense = chat(engine, PROMPTS[1]), [300 + i * 7 % 900 for i in range(300)]
    plain = engine.generate(prompt, sampling(), max_tokens=N, draft="off")
    predicted = engine.generate(prompt, sampling(), max_tokens=N, prediction=nonsense)
    check_same(plain, predicted, nonsense)
    assert predicted.timings.prediction_n_accepted < 0.05 * N


def test_without_drafting_nothing_is_quoted(engine: Engine) -> None:
    prompt = chat(engine, PROMPTS[0])
    for options in ({"draft": "off"}, {"budget": 1}):
        done = engine.generate(prompt, sampling(), max_tokens=40, prediction=[5, 6, 7], **options)
        assert done.timings.draft_n == 0 and done.timings.n_passes == 39


@pytest.mark.parametrize("options", [{"draft_n_max": 3, "budget": 16}, {"draft": "chain", "budget": 4}], ids=str)
def test_limits_hold_for_quotations(engine: Engine, options: dict[str, Any]) -> None:
    prompt = chat(engine, PROMPTS[0])
    plain = engine.generate(prompt, sampling(), max_tokens=N, draft="off")
    done = engine.generate(prompt, sampling(), max_tokens=N, prediction=plain.tokens, trace=True, **options)
    check_same(plain, done, plain.tokens)
    assert max(step.n_depth for step in done.steps) == 3


def test_slots_have_predictions_of_their_own(engine: Engine) -> None:
    prompts = [chat(engine, text) for text in PROMPTS[:2]]
    plain = [engine.generate(prompt, sampling(), max_tokens=N, draft="off") for prompt in prompts]
    for predictions in ([done.tokens for done in plain], [plain[1].tokens, plain[0].tokens], [plain[0].tokens, []]):
        running = [
            engine.submit(prompt, sampling(), max_tokens=N, prediction=prediction)
            for prompt, prediction in zip(prompts, predictions, strict=True)
        ]
        for answer, one, prediction in zip(running, plain, predictions, strict=True):
            check_same(one, answer.result(), prediction)


def test_a_stop_string_counts_no_more_than_the_answer(engine: Engine) -> None:
    prompt = chat(engine, PROMPTS[0])
    plain = engine.generate(prompt, sampling(), max_tokens=N, draft="off")
    stop = plain.text[20:26]
    cut = engine.generate(prompt, sampling(), max_tokens=N, prediction=plain.tokens, stop=[stop])
    assert 0 < cut.timings.prediction_n_accepted <= len(cut.tokens) < N


def test_refusals(engine: Engine) -> None:
    wrong: list[Any] = [[-1], [10**6], ["x"], [5] * (engine.n_ctx_slot + 1)]
    for prediction in wrong:
        with pytest.raises(RequestError) as refusal:
            engine.generate([5, 6, 7], max_tokens=1, prediction=prediction)
        assert refusal.value.param == "prediction"
