"""What a drafter is worth: the engine's own acceptance length on held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dflash_local.bench import Run, answer
from dflash_local.engine import Engine
from dflash_local.sampling import SamplingParams
from dflash_local.train.examples import Example

N_TOKENS = 160  # of an answer


@dataclass(frozen=True)
class Evaluation:
    """AL at temperature 0 with trees of a fixed number of nodes. `depths[d]`: the share of passes that accepted more
    than d draft tokens. `share` of the fit, `step`, `minutes` of the whole run so far."""

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
        passes = max(sum(run.n_passes for run in runs), 1)
        return cls(share, step, minutes, sum(run.n_steps for run in runs) / passes, depths)


@dataclass(frozen=True)
class Speed:
    """Tokens per second of one stream at temperature 0, as the controller decides; `plain` without drafts."""

    plain: float
    drafted: float


def measure(
    model: Path, drafter: Path, held_out: Sequence[Example], budget: int, options: dict[str, Any], *, speed: bool
) -> tuple[list[Run], Speed | None]:
    """Answers to the held-out prompts with trees of `budget` nodes and, with `speed`, plain and as usual."""
    sampling = SamplingParams(temperature=0.0, seed=1)
    with Engine(model, drafter, lookup=False, cost_cache=False, warmup=speed, **options) as engine:

        def run(nodes: int | Literal["auto"]) -> list[Run]:
            return [answer(engine, example.prompt, sampling, N_TOKENS, nodes) for example in held_out]

        fixed = run(budget)
        if not speed:
            return fixed, None
        plain, drafted = (_speed(run(nodes)) for nodes in (1, "auto"))
        return fixed, Speed(plain, drafted)


def _speed(runs: Sequence[Run]) -> float:
    seconds = sum(run.generate for run in runs)
    return sum(run.n_steps for run in runs) / seconds if seconds else 0.0
