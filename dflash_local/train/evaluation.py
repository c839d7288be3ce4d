"""What a drafter is worth: the engine's own acceptance length on held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dflash_local.bench import Run, answer, read_prompts, speed
from dflash_local.engine import Engine
from dflash_local.sampling import SamplingParams
from dflash_local.train.examples import Example
from dflash_local.train.train_settings import TrainSettings

N_TOKENS = 160  # of an answer
N_SLOTS = 4  # answers at once where their speed does not matter
SERVED_RUNS = 3  # of measure_served()
_PART = 0.75  # of the passes that write N_TOKENS on all slots of a run's answers, one measured answer takes


@dataclass(frozen=True)
class Evaluation:
    """AL at temperature 0 with trees of a fixed number of nodes, by the drafter alone.

    `depths[d]`: the share of passes that accepted more than d draft tokens; `share` of the fit; `minutes` of the
    whole run so far.
    """

    share: float
    step: int
    minutes: float
    al: float
    depths: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, runs: Sequence[Run], share: float, step: int, minutes: float) -> Evaluation:
        lengths = [length for run in runs for length in run.lengths]
        deepest = max(lengths, default=1)
        depths = tuple(sum(length > d + 1 for length in lengths) / len(lengths) for d in range(deepest - 1))
        return cls(share, step, minutes, acceptance_length(runs), depths)


@dataclass(frozen=True)
class Served:
    """What a user of the drafter gets at temperature 0: tokens per second of one stream as the controller decides, and
    `plain` without drafts; AL with trees of the fixed number of nodes, prompt lookup among what drafts."""

    plain: float
    drafted: float
    al: float


def measure_alone(engine: Engine, examples: Sequence[Example], budget: int) -> list[Run]:
    """Answers with trees of `budget` nodes from the drafter alone, on an engine of N_SLOTS."""
    return _answers(engine, examples, budget, lookup=False, at_once=N_SLOTS)


def measure_served(engine: Engine, examples: Sequence[Example], budget: int) -> Served:
    """What a user gets: all examples are answered SERVED_RUNS times."""
    with_lookup = _answers(engine, examples, budget, lookup=True, at_once=N_SLOTS)
    plain = _answers(engine, examples, 1, lookup=True, at_once=1)
    usual = _answers(engine, examples, "auto", lookup=True, at_once=1)
    return Served(speed(plain), speed(usual), acceptance_length(with_lookup))


def _answers(
    engine: Engine, examples: Sequence[Example], nodes: int | Literal["auto"], *, lookup: bool, at_once: int
) -> list[Run]:
    sampling = SamplingParams(temperature=0.0, seed=1)

    def of(example: Example) -> Run:
        return answer(engine, example.prompt, sampling, N_TOKENS, nodes, lookup=lookup)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(of, examples))


def n_measured(settings: TrainSettings) -> int:
    """Answers of all measurements of a run, those of a drafter to go on from among them."""
    first = (1 + SERVED_RUNS) * settings.held_out + _n_checked(settings) if settings.continues else 0
    return first + n_measured_to_the_end(settings, settings.evaluations)


def n_measured_to_the_end(settings: TrainSettings, n_evaluations: int) -> int:
    """Those of so many evaluations on the way and of the result, perhaps with two heads."""
    heads = 1 if settings.draft_vocab is not None else 2
    return (n_evaluations + 1 + heads * SERVED_RUNS) * settings.held_out + _n_checked(settings)


def _n_checked(settings: TrainSettings) -> int:
    return sum(len(read_prompts(path)) for path in settings.checks)


def answer_seconds(pass_seconds: float) -> float:
    """Of a measured answer, by the time of a pass of a run's answers: 1.5 s with SmolLM2's 13 ms on two cores."""
    return _PART * N_TOKENS * pass_seconds


def acceptance_length(runs: Sequence[Run]) -> float:
    return sum(run.n_steps for run in runs) / max(sum(run.n_passes for run in runs), 1)
