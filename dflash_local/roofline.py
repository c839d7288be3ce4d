"""Roofline: what bounds a target pass, fitted to measured times of passes.

A pass reads all weights once, however many rows it has, and computes each row. The longer of the two decides, so its
time is about max(floor, rows * time of a row) (docs/roofline.md has both limits of a machine, measured on their own).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

# Fewer points show no shape.
LEAST_POINTS = 4
# Points that a slope needs, and how fast time must grow with rows (as a power) where computing is the bound.
_LEAST_SLOPE_POINTS = 3
_LEAST_GROWTH = 0.5

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Roofline:
    """A pass of n rows takes about max(floor_ms, n * row_ms).

    Attributes:
        floor_ms: time to read the weights; None: computing bounds every measured pass.
        row_ms: time to compute a row; None: reading bounds every measured pass.
    """

    floor_ms: float | None
    row_ms: float | None

    @property
    def knee(self) -> float | None:
        """Rows at which reading takes as long as computing; None: not among the measured passes."""
        return self.floor_ms / self.row_ms if self.floor_ms and self.row_ms else None

    def at(self, rows: int) -> float:
        """Milliseconds of a pass."""
        return max(self.floor_ms or 0.0, rows * (self.row_ms or 0.0))


def fit(costs: Mapping[int, float]) -> Roofline | None:
    """The roofline with the least sum of |log(measured / fitted)| over all splits by rows: the floor is the median of
    the passes below the split, the time of a row that of the others. Medians, because disturbed passes are outliers.
    None: there are too few points.
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
    """Does time grow with rows, as where computing is the bound? By the median slope over all pairs of points."""
    if len(points) < _LEAST_SLOPE_POINTS:
        return False
    slopes = [math.log(b[1] / a[1]) / math.log(b[0] / a[0]) for a, b in combinations(points, 2)]
    return median(slopes) >= _LEAST_GROWTH


def _loss(line: Roofline, points: Points) -> float:
    return sum(abs(math.log(ms / line.at(rows))) for rows, ms in points)
