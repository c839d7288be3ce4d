"""Roofline: what bounds a target pass, fitted to what passes were measured to cost.

A pass reads all weights once, however many rows it has, and computes each row. The longer of the two decides, so its
time is about max(floor, rows * time of a row) (docs/roofline.md has both limits of a machine, measured on their own).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

# Fewer points tell no shape.
LEAST_POINTS = 4
# Points that a slope needs, and by how much time must grow with rows (as a power) for passes to be bound by computing.
_LEAST_SLOPE_POINTS = 3
_LEAST_GROWTH = 0.5

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Roofline:
    """A pass of n rows takes about max(floor_ms, n * row_ms).

    Attributes:
        floor_ms: what reading the weights takes; None: computing bounds every pass that was measured.
        row_ms: what computing a row takes; None: reading bounds every pass that was measured.
    """

    floor_ms: float | None
    row_ms: float | None

    @property
    def knee(self) -> float | None:
        """Rows at which reading takes as long as computing; None: not among the passes that were measured."""
        return self.floor_ms / self.row_ms if self.floor_ms and self.row_ms else None

    def at(self, rows: int) -> float:
        """Milliseconds of a pass."""
        return max(self.floor_ms or 0.0, rows * (self.row_ms or 0.0))


def fit(costs: Mapping[int, float]) -> Roofline | None:
    """The roofline with the least sum of |log(measured / fitted)|, of those whose floor is the median of some narrowest
    passes and whose time of a row is the median of all others. Medians, because a pass that something disturbed is an
    outlier. None: there are too few points.
    """
    points = sorted((rows, ms) for rows, ms in costs.items() if ms > 0)
    if len(points) < LEAST_POINTS:
        return None
    splits = [n for n in range(len(points) + 1) if n == len(points) or _grows(points[n:])]
    return min((_split(points, n) for n in splits), key=lambda line: _loss(line, points))


def _split(points: Points, n: int) -> Roofline:
    floor = median(ms for _, ms in points[:n]) if n else None
    row = median(ms / rows for rows, ms in points[n:]) if n < len(points) else None
    return Roofline(floor, row)


def _grows(points: Points) -> bool:
    """Does time grow with rows, as it does where computing is the bound? By the median of the slopes of all pairs."""
    if len(points) < _LEAST_SLOPE_POINTS:
        return False
    slopes = [math.log(b[1] / a[1]) / math.log(b[0] / a[0]) for a, b in combinations(points, 2)]
    return median(slopes) >= _LEAST_GROWTH


def _loss(line: Roofline, points: Points) -> float:
    return sum(abs(math.log(ms / line.at(rows))) for rows, ms in points)
