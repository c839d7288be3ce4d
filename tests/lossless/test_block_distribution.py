"""Block verification (`accept="block"`) samples from the target's exact distribution, under every sampler that has one.

As test_distribution.py: a random target over twelve tokens with a random DFlash 2 drafter, run through the Engine,
against a numpy forward pass of the same weights. The request's sampler is redone in numpy too. That the rule itself is
exact is shown by enumeration in ggml_ops/tests/pure/test_block_accept.cpp; here it has to be fed the right rows, states
and probabilities.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dflash_local import Engine, SamplingParams
from dflash_local.engine import Completion
from tests.parity.f32 import engine_f32

from . import tiny
from .chi_square import ChiSquare, chi_square
from .test_distribution import FULL, LENGTH, LEVEL, PROMPT, WEIGHTS, draw, probabilities_after

Array = npt.NDArray[np.floating]
# Candidates [n, k], and each one's probabilities after each before it [n, k, k].
Lattice = tuple[list[list[int]], Array]
Rule = Callable[[np.random.Generator, list[int], Lattice], list[int]]

SAMPLERS: dict[str, dict[str, Any]] = {
    "full": FULL,
    "truncated": {"temperature": 0.6, "top_k": 6, "top_p": 0.9, "min_p": 0.05},
    "penalties": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.02}
    | {"repeat_penalty": 1.3, "frequency_penalty": 0.3, "presence_penalty": 0.4, "repeat_last_n": 6},
    "hot": {"temperature": 1.7, "top_k": 8, "top_p": 1.0, "min_p": 0.0},
}
# No distribution to verify against: these sample and match.
OTHERS: dict[str, dict[str, Any]] = {
    # Without the penalty it repeats one token that no draft has.
    "greedy": {
        "temperature": 0.0,
        "repeat_penalty": 1.5,
        "repeat_last_n": 8,
    },
    "mirostat": {"mirostat": 2, "mirostat_tau": 3.0},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    "adaptive": {"samplers": ["min_p", "temperature", "adaptive_p"], "adaptive_target": 0.4},
    "grammar": {"grammar": "root ::= [a-f]+"},
}


@pytest.fixture(scope="module")
def engine(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("tiny") / "dflash2.gguf"
    drafter = tiny.write_drafter(path, "dflash2", tiny.drafter_tensors("dflash2"))
    with engine_f32(tiny_target, drafter, n_ctx=16 * 64, n_slots=16, max_queue=100_000, accept="block") as engine:
        yield engine


def run(engine: Engine, seeds: range, options: dict[str, Any], **request: Any) -> list[Completion]:
    """Answers by seed, each drafted with whole blocks unless `request` says otherwise."""
    request = {"max_tokens": LENGTH, "budget": tiny.BLOCK_SIZE} | request
    running = [engine.submit(PROMPT, SamplingParams(seed=seed, **options), **request) for seed in seeds]
    return [generation.result() for generation in running]


def tokens_of(answers: list[Completion]) -> list[list[int]]:
    return [answer.tokens + [tiny.END] * (answer.finish_reason == "stop") for answer in answers]


# ---- the sampler in numpy ----


def bend(logits: Array, counts: npt.NDArray[np.int64], options: dict[str, Any]) -> Array:
    """Distributions [n, n_vocab] that llama.cpp's default chain makes of logits: penalties (for recent tokens' counts),
    top-k, top-p, min-p, temperature."""
    x: npt.NDArray[Any] = logits.astype(np.float64)
    seen = counts > 0
    repeat = options.get("repeat_penalty", 1.0)
    x = np.where(seen, np.where(x <= 0, x * repeat, x / repeat), x)
    x = x - counts * options.get("frequency_penalty", 0.0) - seen * options.get("presence_penalty", 0.0)
    order = np.argsort(-x, -1)
    x = np.take_along_axis(x, order, -1)
    x[:, options["top_k"] or len(tiny.VOCAB) :] = -np.inf
    p = tiny.softmax(x)
    x[np.cumsum(p, -1) - p >= options["top_p"]] = -np.inf
    p = tiny.softmax(x)
    x[p < options["min_p"] * p[:, :1]] = -np.inf
    bent = np.empty_like(x)
    np.put_along_axis(bent, order, tiny.softmax(x / options["temperature"]), -1)
    return bent


def fit(answers: list[list[int]], options: dict[str, Any], late: int = 0) -> ChiSquare:
    """All tokens of all answers against the exact probabilities; groups: position and token before. late: tokens that
    penalties miss."""
    rows = np.array([PROMPT + answer + [tiny.END] * (LENGTH - len(answer)) for answer in answers])
    real = np.arange(LENGTH) < np.array([[len(answer)] for answer in answers])
    sums = np.cumsum(np.eye(len(tiny.VOCAB), dtype=np.int64)[rows], 1)
    sums = np.concatenate([np.zeros_like(sums[:, :1]), sums], 1)  # [n, i]: counts of the first i tokens
    ends = np.arange(len(PROMPT), rows.shape[1]) - late
    counts = sums[:, ends] - sums[:, np.maximum(ends - options.get("repeat_last_n", 64), 0)]
    probabilities = bend(tiny.target_logits(WEIGHTS, rows)[:, len(PROMPT) - 1 : -1][real], counts[real], options)
    before, tokens = rows[:, len(PROMPT) - 1 : -1][real], rows[:, len(PROMPT) :][real]
    return chi_square(list(zip(np.nonzero(real)[1], before, strict=True)), tokens, probabilities)


# ---- the Engine ----


@pytest.fixture(scope="module", params=["truncated", "penalties"])
def sampled(engine: Engine, request: pytest.FixtureRequest) -> tuple[dict[str, Any], list[Completion]]:
    options = SAMPLERS[request.param]
    return options, run(engine, range(800), options)


def test_distribution(sampled: tuple[dict[str, Any], list[Completion]]) -> None:
    options, answers = sampled
    result = fit(tokens_of(answers), options)
    assert result.n >= 7_500
    assert result.p_value >= LEVEL
    lengths = [length for answer in answers for length in answer.acceptance_lengths]
    assert all(lengths.count(n) > 25 for n in range(1, tiny.BLOCK_SIZE + 1)), (
        "drafts of every length must be accepted, or this says little"
    )


def test_an_error_is_noticed(sampled: tuple[dict[str, Any], list[Completion]]) -> None:
    """Penalties one token late, or none, and a temperature a little off would not fit."""
    options, answers = sampled
    if "repeat_penalty" in options:
        assert fit(tokens_of(answers), options, late=1).p_value < LEVEL
        assert fit(tokens_of(answers), options | {"frequency_penalty": 0.0}).p_value < LEVEL
    else:
        assert fit(tokens_of(answers), options | {"temperature": 0.7}).p_value < LEVEL
        assert fit(tokens_of(answers), options | {"top_p": 0.95}).p_value < LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["auto", 2, 3, tiny.BLOCK_SIZE])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_distribution_of_many_answers(engine: Engine, sampler: str, budget: Any) -> None:
    """Twenty thousand independent answers; "auto" changes the length of the chains within an answer."""
    answers = tokens_of(run(engine, range(10_000, 30_000), SAMPLERS[sampler], budget=budget))
    assert fit(answers, SAMPLERS[sampler]).p_value >= LEVEL


def test_the_rule_is_the_one_asked_for(engine: Engine) -> None:
    """A seed gives one text, another one than sample-and-match gives; a request can say which."""
    block, again = (tokens_of(run(engine, range(200), FULL)) for _ in range(2))
    assert block == again
    match = tokens_of(run(engine, range(200), FULL, accept="match"))
    assert match == tokens_of(run(engine, range(200), FULL, budget=1))
    assert sum(a != b for a, b in zip(block, match, strict=True)) > 150


@pytest.mark.parametrize("sampler", OTHERS)
def test_samplers_without_a_distribution_sample_and_match(engine: Engine, sampler: str) -> None:
    options = FULL | OTHERS[sampler]
    block = run(engine, range(50), options)
    assert tokens_of(block) == tokens_of(run(engine, range(50), options, budget=1))
    assert sum(answer.timings.draft_n_accepted for answer in block) > 0


def test_lengths_and_ends(engine: Engine) -> None:
    """A limit inside a block is kept, and nothing follows <end> though the block went on."""
    for limit in range(1, 2 * tiny.BLOCK_SIZE + 2):
        for answer in run(engine, range(50), FULL, max_tokens=limit):
            assert tiny.END not in answer.tokens
            assert len(answer.tokens) == limit if answer.finish_reason == "length" else len(answer.tokens) < limit
    assert sum(answer.finish_reason == "stop" for answer in run(engine, range(200), FULL)) > 20


# ---- the test itself ----


@pytest.fixture(scope="module")
def lattices(engine: Engine) -> dict[int, Lattice]:
    """The real drafter's lattice after the prompt and each possible first token."""
    probes = {first: engine.draft_probe([*PROMPT, first], tiny.BLOCK_SIZE) for first in range(len(tiny.VOCAB))}
    return {
        first: (probe.ids[1:].tolist(), tiny.softmax(probe.scores[1:]).astype(np.float64))
        for first, probe in probes.items()
    }


def by_blocks(told: Callable[[Array], Array], chance: Callable[[float, float], float]) -> Rule:
    """The rule in numpy. told: what is claimed of a row that a token was drawn from; chance(reach, rest) of keeping a
    prefix."""

    def rule(rng: np.random.Generator, context: list[int], lattice: Lattice) -> list[int]:
        chain: list[int] = []
        rows: list[Array] = []
        before = 0
        for tokens, successors in zip(*lattice, strict=True):
            q = np.zeros(len(tiny.VOCAB))
            q[tokens] = told(successors[before])
            rows.append(q)
            before = draw(rng, successors[before])
            chain.append(tokens[before])
        accepted, reach, residual = 0, 1.0, np.maximum(probabilities_after(context) - rows[0], 0)
        for i, token in enumerate(chain):
            reach = min(1.0, reach * probabilities_after(context + chain[:i])[token] / rows[i][token])
            p, last = probabilities_after(context + chain[: i + 1]), i + 1 == len(chain)
            rest = p if last else np.maximum(reach * p - rows[i + 1], 0)
            if rng.random() < (reach if last else chance(reach, rest.sum())):
                accepted, residual = i + 1, rest
        return [*chain[:accepted], draw(rng, residual)]

    return rule


def as_drawn(q: Array) -> Array:
    return q


def sharpened(q: Array) -> Array:
    return np.square(q) / np.square(q).sum()


def papers_chance(reach: float, rest: float) -> float:
    return rest / (rest + 1 - reach) if rest > 0 else 0.0


def chance_of_reaching(reach: float, rest: float) -> float:
    """As if longer prefixes had not had their chance."""
    return reach


def simulate(rule: Rule, lattices: dict[int, Lattice], n: int = 4_000) -> ChiSquare:
    """n answers in Python: a first token from the target, then one pass of `rule` over a chain from the drafter's
    lattice."""
    rng = np.random.default_rng(0)
    firsts = [draw(rng, probabilities_after(PROMPT)) for _ in range(n)]
    return fit(
        [[first, *rule(rng, [*PROMPT, first], lattices[first])] if first != tiny.END else [first] for first in firsts],
        FULL,
    )


def test_the_right_rule_passes(lattices: dict[int, Lattice]) -> None:
    assert simulate(by_blocks(as_drawn, papers_chance), lattices).p_value >= LEVEL


@pytest.mark.parametrize("rule", [by_blocks(as_drawn, chance_of_reaching), by_blocks(sharpened, papers_chance)])
def test_a_nearly_right_rule_fails(lattices: dict[int, Lattice], rule: Rule) -> None:
    assert simulate(rule, lattices).p_value < LEVEL
