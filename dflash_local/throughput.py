"""Throughput: counts for each of the last seconds, and their total. No timer: a second without a step has no entry."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

SECONDS = 600  # how many are kept


class StepCounts(NamedTuple):
    """Counts of one step, over all slots.

    Attributes:
        tokens, prompt_tokens: tokens written, and prompt tokens read.
        passes: verified trees of slots, without the prompts' passes.
        draft_tokens, accepted: draft tokens verified, and accepted.
    """

    tokens: int = 0
    prompt_tokens: int = 0
    passes: int = 0
    draft_tokens: int = 0
    accepted: int = 0

    def plus(self, other: StepCounts) -> StepCounts:
        return StepCounts(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(slots=True)
class Second:
    """The second that began `t` seconds after the start. A step that spans several seconds is split among them by time.
    `busy`: seconds that steps took; `running`, `waiting`: most requests at once."""

    t: int
    tokens: float = 0.0
    prompt_tokens: float = 0.0
    passes: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    busy: float = 0.0
    running: int = 0
    waiting: int = 0


class Throughput:
    """The last seconds, and the total. One thread adds, any thread may read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = StepCounts()
        self._clock, self._start = clock, clock()
        self._seconds: deque[Second] = deque(maxlen=SECONDS)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    def add(self, start: float, counts: StepCounts, running: int, waiting: int) -> None:
        """Add a step that began at `start` (of the clock), after all others, and has just ended."""
        begin, end = start - self._start, self.now
        self.total = self.total.plus(counts)
        for t in range(max(int(begin), int(end) - SECONDS + 1), int(end) + 1):
            inside = max(min(end, t + 1) - max(begin, t), 0.0)
            share = inside / (end - begin) if end > begin else 1.0
            second = self._at(t)
            for name, count in counts._asdict().items():
                setattr(second, name, getattr(second, name) + share * count)
            second.busy += inside
            second.running, second.waiting = max(second.running, running), max(second.waiting, waiting)

    def since(self, t: int = 0) -> list[Second]:
        """The kept seconds from `t` on; the last one may be unfinished."""
        first = max(t, int(self.now) - SECONDS + 1)
        return [replace(second) for second in self._seconds.copy() if second.t >= first]

    def _at(self, t: int) -> Second:
        if not self._seconds or self._seconds[-1].t < t:
            self._seconds.append(Second(t))
        return self._seconds[-1]
