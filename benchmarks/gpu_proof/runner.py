"""Runs the parts one after the other, each in its own process group, with a log and a time limit. If one fails or takes
too long, the others still run, and its results so far are kept."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.gpu_proof.inflater import Inflater
from benchmarks.gpu_proof.parts import Part, share
from benchmarks.http_load import end_group

LEAST_SECONDS = 10.0  # no part starts with less time left
STOP_SECONDS = 12.0  # for a part to end its servers, which have 10
SECONDS = "GPU_PROOF_SECONDS"  # what a part has, for those that can choose how much they do


class Clock:
    """Counts down."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


@dataclass(frozen=True)
class Outcome:
    """How a part ended. `detail` is empty if it succeeded."""

    DONE: ClassVar[str] = "done"
    FAILED: ClassVar[str] = "failed"
    LATE: ClassVar[str] = "out of time"

    name: str
    status: str
    seconds: float
    limit: float
    detail: str = ""


def run_parts(
    parts: Sequence[Part],
    clock: Clock,
    environment: Mapping[str, str],
    inflater: Inflater,
    logs: Path,
    tell: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run the parts in order, but while a part's pair is being made, run the next one that is ready; if none is, wait
    for any of their pairs. `tell` is called with each outcome at once, so that it is on disk before the next part
    starts."""
    outcomes, waiting = [], list(parts)
    while waiting:
        part = next_part(waiting, inflater)
        if part is None:
            print("waiting for a pair", flush=True)
            pairs = {part.pair for part in waiting if part.pair}
            inflater.wait(pairs, max(0.0, clock.left - LEAST_SECONDS))
            part = next_part(waiting, inflater) or waiting[0]
        limit = share(part, waiting, clock.left)
        waiting.remove(part)
        print(f"{part.name}: {part.what} (at most {limit:.0f} s)", flush=True)
        outcome = run_part(part, limit, environment, inflater, logs / f"{part.name}.log")
        detail = f": {outcome.detail}" if outcome.detail else ""
        print(f"  {outcome.status} after {outcome.seconds:.0f} s{detail}", flush=True)
        tell(outcome)
        outcomes.append(outcome)
        if part.pair and part.pair not in [later.pair for later in waiting]:
            inflater.drop(part.pair)
    return outcomes


def next_part(waiting: Sequence[Part], inflater: Inflater) -> Part | None:
    """The first that need not wait for a pair; None if all must."""
    return next((part for part in waiting if part.pair is None or inflater.has(part.pair)), None)


def run_part(part: Part, limit: float, environment: Mapping[str, str], inflater: Inflater, log: Path) -> Outcome:
    """Run one part for `limit` seconds at most."""
    start = time.monotonic()

    def ended(status: str, detail: str = "") -> Outcome:
        return Outcome(part.name, status, round(time.monotonic() - start, 1), round(limit, 1), detail)

    if part.pair and (reason := inflater.why_missing(part.pair)):
        return ended(Outcome.FAILED, reason)
    if limit < min(LEAST_SECONDS, part.limit):
        return ended(Outcome.LATE, "no time was left for it")
    command = [*part.command, *(("--work", str(inflater.folder)) if part.pair else ())]
    log.parent.mkdir(parents=True, exist_ok=True)
    with inflater.paused() if part.timed else nullcontext(), log.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            env={**environment, SECONDS: f"{limit:.1f}"}, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            return ended(Outcome.LATE, f"stopped; what it had finished is kept (log: {log.name})")
        finally:
            end_group(process, STOP_SECONDS)
    if status == 0:
        return ended(Outcome.DONE)
    return ended(Outcome.FAILED, f"{last_line(log)} (status {status}, log: {log.name})")


def last_line(log: Path) -> str:
    """The last line of a log, which usually is the error."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
