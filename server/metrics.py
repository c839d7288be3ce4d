"""Prometheus text: llama-server's metric names (`server-task.cpp`, `to_metrics`), and our own about what the controller
chose."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from dflash_local.engine import Engine
from dflash_local.server.prometheus import head, label
from dflash_local.stats import EngineStats, Histogram

COUNTERS = {
    "prompt_tokens_total": "Number of prompt tokens processed, excluding cached tokens",
    "prompt_tokens_cached_total": "Number of prompt tokens reused from the cache",
    "prompt_seconds_total": "Total time spent processing prompts",
    "tokens_predicted_total": "Number of generation tokens processed",
    "tokens_predicted_seconds_total": "Total time spent generating tokens",
    "n_decode_total": "Total number of steps, one target pass each",
    "n_tokens_max": "Largest observed sequence length (prompt + generation)",
    "spec_decode_num_draft_tokens_total": "Speculative: Total draft tokens generated",
    "spec_decode_num_accepted_tokens_total": "Speculative: Total draft tokens accepted by the target model",
    "spec_decode_num_drafts_total": "Speculative: Total speculative decoding verification steps",
}
GAUGES = {
    "prompt_tokens_seconds": "Average prompt throughput in tokens/s since the last scrape",
    "predicted_tokens_seconds": "Average generation throughput in tokens/s since the last scrape",
    "requests_processing": "Number of requests processing",
    "requests_deferred": "Number of requests deferred",
    "n_busy_slots_per_decode": "Average number of busy slots per step",
}
OURS = "dflash"
PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


class Metrics:
    """Renders an engine's counters; remembers the last scrape, over whose window the throughput gauges are averaged.

    Attributes:
        started: when counting began, in seconds since 1970.
    """

    def __init__(self, engine: Engine) -> None:
        self.started = int(time.time())
        self._engine = engine
        self._last: dict[str, float] = {}

    def render(self, stats: EngineStats | None = None) -> str:
        """The metrics as text. llama-server's counters grow when a request ends, those of `stats` with every step."""
        counters, totals = self._engine.counters, self._engine.counters.timings
        values: dict[str, float] = {
            "prompt_tokens_total": totals.prompt_n,
            "prompt_tokens_cached_total": totals.cache_n,
            "prompt_seconds_total": totals.prompt_ms / 1e3,
            "tokens_predicted_total": totals.predicted_n,
            "tokens_predicted_seconds_total": totals.predicted_ms / 1e3,
            "n_decode_total": counters.steps,
            "n_tokens_max": counters.tokens_max,
            "spec_decode_num_draft_tokens_total": totals.draft_n,
            "spec_decode_num_accepted_tokens_total": totals.draft_n_accepted,
            "spec_decode_num_drafts_total": counters.depth_drafted[1],
            "requests_processing": self._engine.n_running,
            "requests_deferred": self._engine.n_waiting,
            "n_busy_slots_per_decode": counters.busy_slot_steps / max(counters.steps, 1),
        }
        values["prompt_tokens_seconds"] = self._rate(values, "prompt_tokens_total", "prompt_seconds_total")
        values["predicted_tokens_seconds"] = self._rate(
            values, "tokens_predicted_total", "tokens_predicted_seconds_total"
        )
        self._last = values

        lines = []
        for kind, metrics in (("counter", COUNTERS), ("gauge", GAUGES)):
            for name, text in metrics.items():
                lines += head(f"llamacpp:{name}", kind, text) + [f"llamacpp:{name} {values[name]:.10g}"]
        if drafted := [depth for depth, passes in enumerate(counters.depth_drafted) if passes and depth]:
            lines += head(f"llamacpp:{PER_POSITION}", "counter", "Accepted tokens per draft position")
            lines += [
                f'llamacpp:{PER_POSITION}{{position="{d - 1}"}} {counters.depth_accepted[d]}'
                for d in range(1, drafted[-1] + 1)
            ]
        for name, (text, histogram) in {
            "request_queue_time_seconds": ("From a request to its slot", counters.queue_seconds),
            "time_to_first_token_seconds": ("From a request to its first token", counters.first_token_seconds),
            "time_per_output_token_seconds": ("Between two tokens, on the mean of a request", counters.token_seconds),
        }.items():
            lines += histogram_lines(name, text, histogram)
        lines += choice_lines(stats or EngineStats())
        return "\n".join(lines) + "\n"

    def _rate(self, values: dict[str, float], amount: str, seconds: str) -> float:
        passed = values[seconds] - self._last.get(seconds, 0.0)
        return (values[amount] - self._last.get(amount, 0.0)) / passed if passed > 0 else 0.0


def histogram_lines(name: str, text: str, histogram: Histogram) -> Iterator[str]:
    """How many requests took at most a given time."""
    yield from head(f"{OURS}:{name}", "histogram", text)
    below = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        below += count
        yield f'{OURS}:{name}_bucket{{le="{bound}"}} {below}'
    yield f"{OURS}:{name}_sum {histogram.sum:.10g}"
    yield f"{OURS}:{name}_count {below}"


def choice_lines(stats: EngineStats) -> Iterator[str]:
    """What the controller chose and where the time went. What the library does not report is left out, not 0."""
    graphs = {
        f'model="{model}",outcome="{outcome}"': float(count)
        for model, counts in stats.graphs.items()
        for outcome, count in zip(("reused", "built"), counts, strict=True)
    }
    seconds = {phase: ms / 1e3 for phase, ms in stats.phase_ms.items()}
    for name, text, samples in (
        (
            "passes_by_nodes_total",
            "Target passes by the nodes of a slot's tree, the anchor counted",
            _by("nodes", stats.nodes),
        ),
        (
            "drafts_by_length_total",
            "Drafter passes by the length of the block that was denoised",
            _by("length", stats.lengths),
        ),
        ("choices_total", "Choices of the budget controller by their reason", _by("reason", stats.reasons)),
        ("lookup_tokens_total", "Draft tokens that were only quoted", _by("outcome", stats.lookup)),
        ("quoted_tokens_total", "Accepted ones of these by their source", _by("source", stats.accepted_by_source)),
        ("moved_bytes_total", "Bytes that steps moved to devices and back", _by("direction", stats.moved_bytes)),
        ("graphs_total", "Compute graphs of passes, reused or built anew", graphs),
        ("phase_seconds_total", "Time of the steps by phase", _by("phase", seconds)),
    ):
        if samples:
            yield from head(f"{OURS}:{name}", "counter", text)
            yield from (f"{OURS}:{name}{{{labels}}} {value:.10g}" for labels, value in samples.items())


def _by(name: str, values: Mapping[Any, float] | None) -> dict[str, float]:
    """Samples with one label each."""
    return {label(name, value): amount for value, amount in (values or {}).items()}
