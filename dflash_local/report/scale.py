"""Scale: from values to positions on an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Maps 0 to at least `most` (exactly `most` if `exact`) to pixels from `start` to `end`, with about `n_ticks` round
    ticks."""

    most: float
    start: float
    end: float
    n_ticks: int = 5
    exact: bool = False

    @property
    def step(self) -> float:
        """The distance of two ticks."""
        rough = (self.most or 1.0) / self.n_ticks
        power = 10.0 ** math.floor(math.log10(rough))
        return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))

    @property
    def high(self) -> float:
        """The last value: the first tick not below `most`, or `most` itself if `exact`."""
        if self.exact and self.most:
            return self.most
        return self.step * math.ceil((self.most or 1.0) / self.step * (1 - 1e-9))

    def at(self, value: float) -> float:
        return self.start + (self.end - self.start) * value / self.high

    def ticks(self) -> list[float]:
        return [self.step * i for i in range(int(self.high / self.step + 1e-9) + 1)]

    def label(self, value: float) -> str:
        return f"{round(value, 9):,g}"
