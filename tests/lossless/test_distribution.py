"""Over a vocabulary of twelve tokens: drafted decoding samples from the target's exact distribution.

The models are random but real: GGUFs that run through the Engine. Exact probabilities come from a numpy forward pass of
the same weights. The same test must reject two walks that are known to be biased, on the drafts of the same drafter.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dflash_local import Engine, SamplingParams

from . import tiny
from .chi_square import ChiSquare, chi_square

Tokens = npt.NDArray[np.int64]

LEVEL = 0.001  # a p-value below it is a difference
PROMPT = [0, 1, 2]
LENGTH = 16  # most tokens of an answer
WEIGHTS = tiny.target_tensors()
FULL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def sample(engine: Engine, seeds: range, **drafting: Any) -> list[list[int]]:
    """Answers at temperature 1, one for each seed; <end> is added where an answer ended by itself."""
    running = [
        engine.submit(PROMPT, SamplingParams(seed=seed, **FULL), max_tokens=LENGTH, **drafting) for seed in seeds
    ]
    done = [generation.result() for generation in running]
    return [answer.tokens + [tiny.END] * (answer.finish_reason == "stop") for answer in done]


def fit(answers: list[list[int]]) -> ChiSquare:
    """All tokens of all answers against the target's exact probabilities; groups: position and token before."""
    rows = np.array([PROMPT + answer + [tiny.END] * (LENGTH - len(answer)) for answer in answers])
    real = np.arange(LENGTH) < np.array([[len(answer)] for answer in answers])
    probabilities = tiny.softmax(tiny.target_logits(WEIGHTS, rows))[:, len(PROMPT) - 1 : -1][real]
    before, tokens = rows[:, len(PROMPT) - 1 : -1][real], rows[:, len(PROMPT) :][real]
    return chi_square(list(zip(np.nonzero(real)[1], before, strict=True)), tokens, probabilities)


@cache
def _probabilities_after(context: tuple[int, ...]) -> npt.NDArray[np.floating]:
    return tiny.softmax(tiny.target_logits(WEIGHTS, np.array([context])))[0, -1].astype(np.float64)


def probabilities_after(context: list[int]) -> npt.NDArray[np.floating]:
    """The target's exact distribution of the next token."""
    return _probabilities_after(tuple(context))


# ---- the Engine ----


def test_numpy_forward_is_the_target(tiny_engine: Engine) -> None:
    tokens = np.random.default_rng(0).integers(0, len(tiny.VOCAB), 40)
    logits = tiny.target_logits(WEIGHTS, tokens[None])[0, :-1]
    for width in (1, 7):
        score = tiny_engine.score(tokens.tolist(), 1, width)
        np.testing.assert_allclose(score.logit, logits[np.arange(39), tokens[1:]], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(score.best_id, logits.argmax(-1))


PLAIN: dict[str, Any] = {"budget": 1}
CHAIN: dict[str, Any] = {"budget": tiny.BLOCK_SIZE, "draft": "chain"}
TREE: dict[str, Any] = {"budget": 24, "draft": "tree"}
# Plain decoding asks no drafter: one engine's is as good as the other's.
DRAFTING = pytest.mark.parametrize(
    ("tiny_engine", "drafting"),
    [
        pytest.param("dflash", PLAIN, id="plain"),
        *(
            pytest.param(drafter, drafting, id=f"{drafter}-{shape}")
            for drafter in ("dflash", "dflash2")
            for shape, drafting in (("chain", CHAIN), ("tree", TREE))
        ),
    ],
    indirect=["tiny_engine"],
    scope="session",
)


@DRAFTING
def test_distribution(tiny_engine: Engine, drafting: dict[str, Any]) -> None:
    first = 800 * int(drafting["budget"])
    result = fit(sample(tiny_engine, range(first, first + 800), **drafting))
    assert result.n >= 10_000
    assert result.p_value >= LEVEL


def changing(engine: Engine) -> Callable[[range], list[list[int]]]:
    """Answers under a controller that keeps changing its mind: the tree's size follows measured times, which are noise
    at this size."""

    def answers(seeds: range) -> list[list[int]]:
        done = sample(engine, seeds, budget="auto")
        sizes = engine.stats()["choices"]["nodes"]
        assert sum(count >= 20 for count in sizes.values()) >= 4, f"the budget hardly changed: {sizes}"
        return done

    return answers


def test_distribution_while_the_budget_changes(tiny_engine: Engine) -> None:
    assert fit(changing(tiny_engine)(range(70_000, 70_800))).p_value >= LEVEL


@pytest.mark.slow
@DRAFTING
def test_distribution_of_many_answers(tiny_engine: Engine, drafting: dict[str, Any]) -> None:
    """Twenty thousand independent answers."""
    assert fit(sample(tiny_engine, range(10_000, 30_000), **drafting)).p_value >= LEVEL


@pytest.mark.slow
def test_distribution_of_many_answers_while_the_budget_changes(tiny_engine: Engine) -> None:
    assert fit(changing(tiny_engine)(range(80_000, 100_000))).p_value >= LEVEL


def test_drafts_are_accepted_at_every_depth(tiny_engine: Engine) -> None:
    """Else the tests above would say nothing about accepted tokens."""
    seeds = [SamplingParams(seed=seed, **FULL) for seed in range(100)]
    running = [tiny_engine.submit(PROMPT, sampling, max_tokens=LENGTH, **CHAIN) for sampling in seeds]
    lengths = [length for generation in running for length in generation.result().acceptance_lengths]
    assert all(lengths.count(length) > 10 for length in range(1, tiny.BLOCK_SIZE + 1))


def test_seeds_give_the_plain_answers(tiny_engine: Engine) -> None:
    seeds = range(200)
    plain = sample(tiny_engine, seeds, **PLAIN)
    assert sample(tiny_engine, seeds, **CHAIN) == plain
    assert sample(tiny_engine, seeds, **TREE) == plain
    assert changing(tiny_engine)(seeds) == plain


# ---- the test itself ----

Walk = Callable[[np.random.Generator, list[int], "Draft"], list[int]]
Draft = tuple[list[int], npt.NDArray[np.floating]]  # tokens of a chain, and the drafter's distributions [len, n_vocab]


def draw(rng: np.random.Generator, p: npt.NDArray[np.floating]) -> int:
    return int(rng.choice(len(p), p=p / p.sum()))


def sample_and_match(rng: np.random.Generator, context: list[int], draft: Draft) -> list[int]:
    """The right rule: the target samples, a draft token counts if it is that sample."""
    new: list[int] = []
    for guess in draft[0]:
        new.append(draw(rng, probabilities_after(context + new)))
        if new[-1] != guess:
            return new
    return [*new, draw(rng, probabilities_after(context + new))]


def reject_by_ratio(rng: np.random.Generator, context: list[int], draft: Draft) -> list[int]:
    """Biased: min(1, p/q) and the residual of p - q are right only for a draft that was sampled from q, not for its
    best tokens."""
    new: list[int] = []
    for guess, q in zip(*draft, strict=True):
        p = probabilities_after(context + new)
        if rng.random() * q[guess] >= p[guess]:
            return [*new, draw(rng, np.maximum(p - q, 0))]
        new.append(guess)
    return [*new, draw(rng, probabilities_after(context + new))]


def match_and_resample(rng: np.random.Generator, context: list[int], draft: Draft) -> list[int]:
    """Biased: after a mismatch the target samples anew, so that each draft token gets a second chance."""
    new: list[int] = []
    for guess in draft[0]:
        p = probabilities_after(context + new)
        if draw(rng, p) != guess:
            return [*new, draw(rng, p)]
        new.append(guess)
    return [*new, draw(rng, probabilities_after(context + new))]


@pytest.fixture(scope="module")
def drafts(tiny_engine: Engine) -> dict[int, Draft]:
    """The real drafter's chain after the prompt and each possible first token."""
    chains: dict[int, Draft] = {}
    for first in range(len(tiny.VOCAB)):
        probe = tiny_engine.draft_probe([*PROMPT, first], tiny.BLOCK_SIZE)
        marginals = tiny.softmax(probe.logits[1:])
        chains[first] = (marginals.argmax(-1).tolist(), marginals.astype(np.float64))
    return chains


def simulate(walk: Walk, drafts: dict[int, Draft], n: int = 4_000) -> ChiSquare:
    """n answers in Python: a first token from the target, then one pass of `walk` over the drafter's chain."""
    rng = np.random.default_rng(0)
    firsts = [draw(rng, probabilities_after(PROMPT)) for _ in range(n)]
    return fit(
        [[first, *walk(rng, [*PROMPT, first], drafts[first])] if first != tiny.END else [first] for first in firsts]
    )


def test_the_right_walk_passes(drafts: dict[int, Draft]) -> None:
    assert simulate(sample_and_match, drafts).p_value >= LEVEL


@pytest.mark.parametrize("walk", [reject_by_ratio, match_and_resample])
def test_a_biased_walk_fails(walk: Walk, drafts: dict[int, Draft]) -> None:
    assert simulate(walk, drafts).p_value < LEVEL
