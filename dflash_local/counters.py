"""Counters: Python's totals since load, of requests, their times and steps; those of libdflash are in stats.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from dflash_local.draft_options import MAX_NODES
from dflash_local.generation import Timings
from dflash_local.native import SlotStats
from dflash_local.stats import Histogram

# The bounds of vLLM's histograms, with shorter ones added for the time of one token.
FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
QUEUE_SECONDS = (
    0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip


@dataclass
class Counters:
    """Totals since load, over finished requests and all steps. Times in milliseconds, in histograms in seconds: from
    the request to its slot, from the request to its first token, and a request's mean between two tokens."""

    steps: int = 0
    busy_slot_steps: int = 0
    requests: int = 0
    timings: Timings = field(default_factory=Timings)
    tokens_max: int = 0
    depth_drafted: list[int] = field(default_factory=lambda: [0] * MAX_NODES)
    depth_accepted: list[int] = field(default_factory=lambda: [0] * MAX_NODES)
    queue_seconds: Histogram = field(default_factory=lambda: Histogram(QUEUE_SECONDS))
    first_token_seconds: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_SECONDS))
    token_seconds: Histogram = field(default_factory=lambda: Histogram(TOKEN_SECONDS))

    def add(self, stats: SlotStats, timings: Timings, waited: float) -> None:
        """Count one finished request that `waited` seconds for its slot, and perhaps on it for its first pass."""
        self.requests += 1
        self.queue_seconds.add(waited)
        if timings.predicted_n:
            self.first_token_seconds.add(waited + (stats.t_queue_ms + timings.prompt_ms) / 1e3)
        if timings.n_steps:
            self.token_seconds.add(timings.predicted_ms / 1e3 / timings.n_steps)
        self.timings = Timings.total((self.timings, timings))
        self.tokens_max = max(self.tokens_max, stats.n_prompt + timings.predicted_n)
        if stats.n_drafted:
            self.depth_drafted = [a + b for a, b in zip(self.depth_drafted, stats.depth_drafted, strict=True)]
            self.depth_accepted = [a + b for a, b in zip(self.depth_accepted, stats.depth_accepted, strict=True)]
