"""The figures of a comparison with upstream's server: the answers of each system, and what they say of ours."""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from benchmarks.http_load import Answer
from benchmarks.systems import OURS, OWN_PLAIN, PLAIN, SWEEP


@dataclass(frozen=True)
class Run:
    """One system's answers to all prompts in one repeat. Lists have an item per prompt, times are in seconds."""

    tokens: list[int]  # after the first, including the one that ends the answer
    generate: list[float]  # from the first token to the last, by the server's clock
    latency: list[float]  # of the whole request, by the client's clock
    ttft: list[float]  # time of the prompt, by the server's clock
    passes: list[int]  # target passes after the prompt's
    texts: list[int]  # checksums

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Run:
        """From answers, with times rounded to microseconds."""
        return cls(
            [answer.n_tokens - 1 for answer in answers],
            [round(answer.generate, 6) for answer in answers],
            [round(answer.latency, 6) for answer in answers],
            [round(answer.ttft, 6) for answer in answers],
            [answer.passes for answer in answers],
            [zlib.crc32(answer.text.encode()) for answer in answers],
        )

    def waits(self) -> Iterator[float]:
        """Seconds that a client waited beside prompt and generation: HTTP, the template, a place to run, the answer."""
        for latency, ttft, generate in zip(self.latency, self.ttft, self.generate, strict=True):
            yield latency - ttft - generate


def speed(runs: Sequence[Run]) -> float:
    """Tokens per second: all tokens after each answer's first over all time since then, so long answers weigh more."""
    return sum(sum(run.tokens) for run in runs) / sum(sum(run.generate) for run in runs)


@dataclass(frozen=True)
class Cell:
    """One line of the table: the runs of each system, one per repeat. A draft length that could not win has fewer, one
    that could not be measured none; `left_out` has the reason."""

    drafter: str
    ftype: str
    temperature: float
    runs: dict[str, list[Run]]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, float]:
        return self.drafter, self.ftype, self.temperature

    def speed(self, system: str) -> float:
        return speed(self.runs[system])

    def al(self, system: str) -> float:
        """Acceptance length over all answers."""
        passes = sum(sum(run.passes) for run in self.runs[system])
        return sum(sum(run.tokens) for run in self.runs[system]) / passes if passes else 0.0

    @property
    def lengths(self) -> list[str]:
        """Upstream's draft lengths that were measured: in the first repeat, in which all play."""
        return [name for name in SWEEP if self.runs.get(name)]

    @property
    def best(self) -> str | None:
        """The fastest of upstream's completely measured draft lengths; None if there is none."""
        n = len(self.runs[PLAIN])
        complete = [name for name in self.lengths if len(self.runs[name]) == n]
        return max(complete, key=self.speed, default=None)

    def ratio(self, base: str) -> float:
        """Ours over `base`."""
        return self.speed(OURS) / self.speed(base)

    def spread(self, base: str) -> tuple[float, float]:
        """The lowest and the highest ratio of a single repeat."""
        ratios = [speed([a]) / speed([b]) for a, b in zip(self.runs[OURS], self.runs[base], strict=True)]
        return min(ratios), max(ratios)

    @property
    def over_better(self) -> float:
        """Ours over the better of plain and upstream's best."""
        return min(self.ratio(base) for base in (PLAIN, self.best) if base)

    def with_prompts(self, base: str) -> float:
        """Ours over `base` from a client's view: all tokens over all requests' time, with prompts and HTTP."""

        def rate(name: str) -> float:
            runs = self.runs[name]
            return sum(sum(run.tokens) + len(run.tokens) for run in runs) / sum(sum(run.latency) for run in runs)

        return rate(OURS) / rate(base)

    def waits_ms(self, system: str) -> tuple[float, float]:
        """What a client waited beside prompt and generation: the median of the answers, and the worst."""
        waits = [1e3 * wait for run in self.runs[system] for wait in run.waits()]
        return statistics.median(waits), max(waits)

    def same_answers(self, system: str) -> int:
        """The number of answers in the first repeat that equal plain upstream's."""
        return sum(a == b for a, b in zip(self.runs[system][0].texts, self.runs[PLAIN][0].texts, strict=True))

    def to_json(self) -> dict[str, Any]:
        systems = {
            name: {
                "tokens_per_second": round(self.speed(name), 2),
                "al": round(self.al(name), 3),
                "ttft_ms": round(1e3 * statistics.median(x for run in runs for x in run.ttft), 2),
                "wait_ms": [round(x, 2) for x in self.waits_ms(name)],
                "same_answers_as_plain": self.same_answers(name),
                "runs": [asdict(run) for run in runs],
            }
            for name, runs in self.runs.items()
        }
        best = self.best
        return {
            "drafter": self.drafter,
            "ftype": self.ftype,
            "temperature": self.temperature,
            "best_upstream": best,
            **self._ratios("over_best", best),
            **self._ratios("over_plain", PLAIN),
            **self._ratios("over_own_plain", OWN_PLAIN),
            "over_best_with_prompts": round(self.with_prompts(best), 4) if best else None,
            "systems": systems,
            **({"left_out": self.left_out} if self.left_out else {}),
        }

    def _ratios(self, name: str, base: str | None) -> dict[str, Any]:
        """Ours over `base`, and its spread, as a record names them; null without a base."""
        if base is None:
            return {name: None, f"{name}_spread": None}
        return {name: round(self.ratio(base), 4), f"{name}_spread": [round(x, 4) for x in self.spread(base)]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        names = [field.name for field in fields(Run)]
        runs = {
            system: [Run(**{name: run[name] for name in names}) for run in found["runs"]]
            for system, found in data["systems"].items()
        }
        return cls(data["drafter"], data["ftype"], data["temperature"], runs, data.get("left_out", {}))
