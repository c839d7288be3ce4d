"""Throughput: what each second brought, with a clock of our own."""

from __future__ import annotations

import pytest

from dflash_local.throughput import SECONDS, StepCounts, Throughput


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throughput(clock: Clock) -> Throughput:
    return Throughput(clock)


def step(throughput: Throughput, clock: Clock, begin: float, end: float, tokens: int, **more: int) -> None:
    clock.now = 1000 + end
    throughput.add(1000 + begin, StepCounts(tokens, passes=1), more.get("running", 1), more.get("waiting", 0))


def test_nothing_ran(throughput: Throughput, clock: Clock) -> None:
    clock.now += 50
    assert throughput.since() == []
    assert throughput.now == 50
    assert throughput.total == StepCounts()


def test_steps_of_a_second_are_summed(throughput: Throughput, clock: Clock) -> None:
    step(throughput, clock, 2.0, 2.25, 3, running=1, waiting=5)
    step(throughput, clock, 2.5, 2.75, 4, running=2)
    (second,) = throughput.since()
    assert (second.t, second.tokens, second.passes, second.busy) == (2, 7, 2, 0.5)
    assert (second.running, second.waiting) == (2, 5)
    assert throughput.total == StepCounts(7, passes=2)


def test_a_long_step_counts_by_the_share_of_its_time(throughput: Throughput, clock: Clock) -> None:
    step(throughput, clock, 0.5, 3.0, 10)
    found = {second.t: (second.tokens, second.busy) for second in throughput.since() if second.busy}
    assert found == {0: (2.0, 0.5), 1: (4.0, 1.0), 2: (4.0, 1.0)}


def test_a_step_that_took_no_time_counts(throughput: Throughput, clock: Clock) -> None:
    step(throughput, clock, 1.5, 1.5, 6)
    assert [(second.t, second.tokens) for second in throughput.since()] == [(1, 6)]


def test_only_the_last_seconds_are_kept(throughput: Throughput, clock: Clock) -> None:
    for t in range(2 * SECONDS):
        step(throughput, clock, t + 0.1, t + 0.2, 1)
    kept = throughput.since()
    assert [second.t for second in kept] == [*range(SECONDS, 2 * SECONDS)]
    assert [second.t for second in throughput.since(2 * SECONDS - 2)] == [2 * SECONDS - 2, 2 * SECONDS - 1]
    clock.now += SECONDS - 10
    assert len(throughput.since()) == 10
    assert throughput.total.tokens == 2 * SECONDS


def test_a_step_that_outlives_the_memory(throughput: Throughput, clock: Clock) -> None:
    step(throughput, clock, 0, 3 * SECONDS, 3 * SECONDS)
    kept = throughput.since()
    assert len(kept) == SECONDS
    assert kept[0].tokens == pytest.approx(1)
    assert throughput.total.tokens == 3 * SECONDS


def test_what_was_told_does_not_change(throughput: Throughput, clock: Clock) -> None:
    step(throughput, clock, 0.1, 0.2, 1)
    (told,) = throughput.since()
    step(throughput, clock, 0.3, 0.4, 1)
    assert told.tokens == 1
