"""EngineStats: libdflash's totals since load, or between two readings. Histogram: a distribution."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# One step's phases (docs/architecture.md); other is the rest of the step.
PHASES = ("plan", "verify", "walk", "commit", "draft", "grow", "other")
# "target_decoding": the target's passes without prompt rows that follow another such pass.
PASSES = ("target", "target_decoding", "drafter")


def tokens_per_second(tokens: int, seconds: float) -> float:
    """0 if there was no time."""
    return tokens / seconds if seconds else 0.0


@dataclass(frozen=True)
class EngineStats:
    """The counters of dflash_engine_stats. A value that the library did not report is absent, never zero.

    Attributes:
        steps: steps over all slots; None if unknown.
        phase_ms: time in each of PHASES.
        graphs: compute graphs (reused, built), by PASSES.
        nodes: number of trees by their nodes, anchor included.
        lengths: number of drafter passes by the length of their block.
        reasons: number of the controller's choices by their reason.
        lookup: draft tokens that were only quoted, "drafted" and "accepted".
        accepted_by_source: the accepted ones by their source: "text", "prediction", "corpus", "answers".
        moved_bytes: bytes that steps moved "to_device", "from_device" and "between_devices"; all 0 on a CPU.
        cost_source: source of the costs at the start: "measured" or "cache".
    """

    steps: int | None = None
    phase_ms: Mapping[str, float] = field(default_factory=dict)
    graphs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    nodes: Mapping[int, int] | None = None
    lengths: Mapping[int, int] | None = None
    reasons: Mapping[str, int] | None = None
    lookup: Mapping[str, int] | None = None
    accepted_by_source: Mapping[str, int] | None = None
    moved_bytes: Mapping[str, int] | None = None
    cost_source: str | None = None

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> EngineStats:
        """From the JSON of dflash_engine_stats."""
        choices, lookup = stats.get("choices", {}), stats.get("lookup")
        sources = (lookup or {}).get("by_source")

        def by_number(name: str) -> dict[int, int] | None:
            return {int(number): count for number, count in choices[name].items()} if name in choices else None

        return cls(
            steps=stats.get("steps"),
            phase_ms={phase: stats[f"t_{phase}_ms"] for phase in PHASES if f"t_{phase}_ms" in stats},
            graphs={
                model: (stats[f"graphs_reused_{model}"], stats[f"graphs_built_{model}"])
                for model in PASSES
                if f"graphs_reused_{model}" in stats and f"graphs_built_{model}" in stats
            },
            nodes=by_number("nodes"),
            lengths=by_number("lengths"),
            reasons=choices.get("reasons"),
            lookup=None if lookup is None else {name: lookup[name] for name in ("drafted", "accepted")},
            accepted_by_source=sources and {source: counts["accepted"] for source, counts in sources.items()},
            moved_bytes=stats.get("moved_bytes"),
            cost_source=stats.get("cost_source"),
        )

    def __sub__(self, earlier: EngineStats) -> EngineStats:
        """What was added since `earlier`."""
        return self._combine(earlier, -1)

    def __add__(self, other: EngineStats) -> EngineStats:
        """The sum; a value that one of them lacks is absent."""
        return self._combine(other, 1)

    def _combine(self, other: EngineStats, sign: int) -> EngineStats:
        return EngineStats(
            steps=None if self.steps is None or other.steps is None else self.steps + sign * other.steps,
            phase_ms={p: ms + sign * other.phase_ms[p] for p, ms in self.phase_ms.items() if p in other.phase_ms},
            graphs={
                model: (reused + sign * other.graphs[model][0], built + sign * other.graphs[model][1])
                for model, (reused, built) in self.graphs.items()
                if model in other.graphs
            },
            cost_source=self.cost_source,
            **{name: _counts(getattr(self, name), getattr(other, name), sign) for name in _COUNTS},
        )

    def phase_shares(self) -> dict[str, float]:
        """Each phase's share of the time; empty unless all phases are known, since shares would mislead then."""
        total = sum(self.phase_ms.values())
        return (
            {phase: ms / total for phase, ms in self.phase_ms.items()}
            if len(self.phase_ms) == len(PHASES) and total > 0
            else {}
        )

    def reuse(self) -> dict[str, float]:
        """Share of passes that reused a compute graph, by PASSES."""
        return {model: reused / (reused + built) for model, (reused, built) in self.graphs.items() if reused + built}


class Histogram:
    """How many values were at most each of `bounds`, or above them all (the last of `counts`), and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


# The fields that count something for each key.
_COUNTS = ("nodes", "lengths", "reasons", "lookup", "accepted_by_source", "moved_bytes")


def _counts(a: Mapping[Any, int] | None, b: Mapping[Any, int] | None, sign: int) -> dict[Any, int] | None:
    """a + sign * b, without zeros."""
    if a is None or b is None:
        return None
    sums = {key: a.get(key, 0) + sign * b.get(key, 0) for key in a.keys() | b.keys()}
    return {key: sums[key] for key in sorted(sums) if sums[key]}
