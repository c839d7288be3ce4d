"""What a drafter is worth: the engine's own acceptance length on held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dflash_local.bench import Run, answer, speed
from dflash_local.engine import Engine
from dflash_local.sampling import SamplingParams
from dflash_local.train.examples import Example

N_TOKENS = 160  # of an answer
N_SLOTS = 4  # answers at once where their speed does not matter


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


class Measurement(NamedTuple):
    runs: list[Run]  # of the drafter alone
    served: Served | None


def measure(
    model: Path, drafter: Path, held_out: Sequence[Example], budget: int, options: dict[str, Any], *, served: bool
) -> Measurement:
    """Answers to the held-out prompts with trees of `budget` nodes; with `served`, also as a user gets them."""
    sampling = SamplingParams(temperature=0.0, seed=1)
    with Engine(model, drafter, cost_cache=False, warmup=served, n_slots=N_SLOTS, **options) as engine:

        def run(nodes: int | Literal["auto"], lookup: bool, at_once: int) -> list[Run]:
            def of(example: Example) -> Run:
                return answer(engine, example.prompt, sampling, N_TOKENS, nodes, lookup=lookup)

            with ThreadPoolExecutor(at_once) as pool:
                return list(pool.map(of, held_out))

        alone = run(budget, False, N_SLOTS)
        if not served:
            return Measurement(alone, None)
        with_lookup, plain, usual = run(budget, True, N_SLOTS), run(1, True, 1), run("auto", True, 1)
        return Measurement(alone, Served(speed(plain), speed(usual), acceptance_length(with_lookup)))


def acceptance_length(runs: Sequence[Run]) -> float:
    return sum(run.n_steps for run in runs) / max(sum(run.n_passes for run in runs), 1)
