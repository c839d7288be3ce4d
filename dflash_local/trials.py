"""Find the best drafter type for this machine: write each candidate, run it on the same prompts, and time it.

A smaller drafter reads less memory in each pass and guesses a little worse. Where the two cross depends on the machine,
so it is measured. The candidates take turns; all intervals come from resampling the prompts (percentile bootstrap, 95
of 100).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dflash_local.bench import Run, answer
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.engine import Engine
    from dflash_local.sampling import SamplingParams

_RESAMPLES = 2000
_FIXED_BUDGET = 16  # nodes


@dataclass(frozen=True)
class Interval:
    """A value and its 95% confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Trial:
    """A candidate's drafter file and its answers: `runs[round][prompt]` as the controller decides, and `fixed[prompt]`
    with a fixed budget. Only the latter compare acceptance, since the controller drafts more with a cheap drafter."""

    name: str
    path: Path
    runs: list[list[Run]] = field(default_factory=list)
    fixed: list[Run] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        return self.path.stat().st_size

    def al(self) -> Interval:
        """Acceptance length over the answers with a fixed budget."""
        return _interval([(run.n_steps, len(run.lengths)) for run in self.fixed])

    def tokens_per_second(self) -> Interval:
        """Tokens after each answer's first, over the time since it."""
        return _interval(self._times())

    def speed_over(self, other: Trial) -> Interval:
        """Ratio of tokens per second, with the same prompts resampled on both sides: those that both answer with more
        than one token. Raises RequestError if there is none."""
        both = [pair for pair in zip(self._times(), other._times(), strict=True) if pair[0][0] and pair[1][0]]
        if not both:
            raise _too_short()
        speed, other_speed = map(_ratio, zip(*both, strict=True))
        return _bootstrap(len(both), lambda prompts: speed(prompts) / other_speed(prompts))

    def _times(self) -> list[tuple[float, float]]:
        """Tokens and seconds of each prompt: medians over the rounds."""
        return [
            (statistics.median(run.n_steps for run in prompt), statistics.median(run.generate for run in prompt))
            for prompt in zip(*self.runs, strict=True)
        ]


def _too_short() -> RequestError:
    return RequestError(
        "no prompt is answered with more than one token, so there is no speed to compare", param="--prompts",
        hint="give prompts with longer answers",
    )  # fmt: skip


def _ratio(parts: Sequence[tuple[float, float]]) -> Callable[[Sequence[int]], float]:
    """A function of chosen prompts: sum of numerators over sum of denominators."""
    return lambda prompts: sum(parts[i][0] for i in prompts) / (sum(parts[i][1] for i in prompts) or 1.0)


def _interval(parts: Sequence[tuple[float, float]]) -> Interval:
    return _bootstrap(len(parts), _ratio(parts))


def _bootstrap(n_prompts: int, statistic: Callable[[Sequence[int]], float]) -> Interval:
    chance = random.Random(0)
    drawn = sorted(statistic(chance.choices(range(n_prompts), k=n_prompts)) for _ in range(_RESAMPLES))
    edge = _RESAMPLES // 40
    return Interval(statistic(range(n_prompts)), drawn[edge], drawn[-edge - 1])


def run_trials(
    drafters: Mapping[str, Path],
    load: Callable[[Path | None], AbstractContextManager[Engine]],
    prompts: Sequence[dict[str, Any]],
    sampling: SamplingParams,
    n_predict: int,
    rounds: int,
    *,
    report: Callable[[str], None] = lambda text: None,
) -> tuple[Trial, dict[str, Trial]]:
    """Answer all prompts with each of `drafters`, `rounds` times in turns, and plain; `load(drafter)` opens an engine.

    Returns plain decoding and the drafters' trials by name. Raises RequestError if all answers of a turn are a single
    token.
    """
    plain = Trial("plain", Path())
    trials = {name: Trial(name, path) for name, path in drafters.items()}
    for number in range(rounds):
        turns = [plain, *trials.values()]
        for trial in turns[:: -1 if number % 2 else 1]:
            report(f"round {number + 1} of {rounds}: {trial.name}")
            with load(None if trial is plain else trial.path) as engine:
                budget: int | Literal["auto"] = 1 if trial is plain else "auto"
                answer(engine, prompts[0], sampling, n_predict, budget)
                trial.runs.append([answer(engine, prompt, sampling, n_predict, budget) for prompt in prompts])
                if not any(run.n_steps for run in trial.runs[-1]):
                    raise _too_short()
                if number == 0 and trial is not plain:
                    trial.fixed.extend(answer(engine, prompt, sampling, n_predict, _FIXED_BUDGET) for prompt in prompts)
    return plain, trials


def recommended(trials: Sequence[Trial]) -> Trial:
    """The smallest trial that is not measurably slower than the fastest."""
    fastest = max(trials, key=lambda trial: trial.tokens_per_second().value)
    as_fast = [trial for trial in trials if trial is fastest or trial.speed_over(fastest).high >= 1]
    return min(as_fast, key=lambda trial: trial.n_bytes)


def table(plain: Trial, trials: Sequence[Trial]) -> str:
    """Markdown: one row for each candidate."""
    rows = [f"| drafter | MB | AL of {_FIXED_BUDGET} nodes | tok/s | over plain |", "|---|---|---|---|---|"]
    rows.append(f"| plain | | | {_shown(plain.tokens_per_second(), 1)} | 1.00 |")
    for trial in trials:
        rows.append(
            f"| {trial.name} | {trial.n_bytes / 1e6:.1f} | {_shown(trial.al(), 2)} | "
            f"{_shown(trial.tokens_per_second(), 1)} | {_shown(trial.speed_over(plain), 2)} |"
        )
    return "\n".join(rows) + "\n"


def _shown(interval: Interval, digits: int) -> str:
    return f"{interval.value:.{digits}f} ({interval.low:.{digits}f} to {interval.high:.{digits}f})"
