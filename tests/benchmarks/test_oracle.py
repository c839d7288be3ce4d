"""Rules replayed over the steps of answers: what each takes, what it reaches, and who cannot be beaten."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks import oracle
from benchmarks.oracle import Grown, best, compare, fixed, log_losses, long_run, markdown, own_rate, rate
from benchmarks.pass_times import PassTimes
from dflash_local.generation import Step
from dflash_local.native import Origin, VerifiedTree

# A millisecond a row, half of one for a block of 8, and a quarter for another width.
TIMES = PassTimes({1: 1.0, 64: 64.0}, [{8: 0.5}], rebuild_ms=0.25)


def tree(values: list[float], accepted: int) -> VerifiedTree:
    """A chain, of which so many draft nodes are accepted."""
    n = len(values) + 1
    probs = [0.0] + [value / before for value, before in zip(values, [1.0, *values], strict=False)]
    return VerifiedTree(
        tokens=[*range(n)], parents=[*range(-1, n - 1)], probs=probs, values=[1.0, *values],
        origins=[Origin.DRAFTER] * n, path=[*range(accepted + 1)],
    )  # fmt: skip


def step(values: list[float], accepted: int) -> Step:
    its = tree(values, accepted)
    return Step(accepted + 1, len(its.tokens), len(values), 8, accepted, "fixed budget", 9.0, 9.0, 0.0, its)


def test_a_tree_as_it_grew() -> None:
    prompt = Step(1, 0, 0, 0, 0, "", 0.0, 9.0)
    plain = Step(1, 1, 0, 0, 0, "plain", 0.0, 9.0, 0.0, VerifiedTree([7], [-1], [0.0], [1.0], [Origin.TARGET], [0]))
    (one,) = oracle.grown([prompt, plain, step([0.9, 0.5], 1)], TIMES)
    assert one == Grown([0.9, 0.5], [True, False], 0.5)
    assert [one.tokens(k) for k in range(3)] == [1, 2, 2]
    assert [one.milliseconds(k, 2, TIMES) for k in range(4)] == [1.75, 2.5, 3.75, 3.75]  # there is no third node


def test_a_rule_takes_what_pays() -> None:
    one = Grown([0.9, 0.8, 0.1], [True, True, True], 0.5)
    # 1/1.5, 1.9/2.5, 2.7/3.5 and 2.8/4.5 tokens per millisecond
    assert own_rate(TIMES)(one, 0) == 2 and own_rate(TIMES)(one, 2) == 1
    assert best(one, 0, TIMES, lambda gain, ms: gain - 0.85 * ms) == 1
    assert best(one, 0, TIMES, lambda gain, ms: gain - 0.05 * ms) == 3
    assert rate([one], fixed(3), TIMES) == pytest.approx(3 / 3.5 * 1e3)
    sizes = iter([2, 1, 1])
    assert rate([one] * 3, lambda *_: next(sizes), TIMES) == pytest.approx(7 / (3.5 + 2.75 + 2.5) * 1e3)


def test_the_long_run_is_never_slower_where_values_are_right() -> None:
    rng = random.Random(1)
    times = PassTimes({1: 3.0, 8: 3.7, 16: 5.4, 64: 18.5}, [{8: 0.75}])
    trees = []
    for _ in range(4000):
        ease, value, values, accepted, alive = rng.choice([0.2, 0.5, 0.95]), 1.0, [], [], True
        for _ in range(24):
            value *= ease
            alive = alive and rng.random() < ease
            values.append(value)
            accepted.append(alive)
        trees.append(Grown(values, accepted, 0.75))
    hindsight = max(rate(trees, fixed(1 + k), times) for k in range(25))
    own, run = rate(trees, own_rate(times), times), rate(trees, long_run(trees, times), times)
    bound = oracle.oracle(trees, times, vain_blocks=True)
    assert hindsight < own < run < bound < oracle.oracle(trees, times, vain_blocks=False)


def test_log_losses() -> None:
    drafter, values = log_losses([tree([0.5, 0.4], 1)])
    assert drafter == values == pytest.approx(-(math.log(0.5) + math.log(0.2)) / 2)
    # below a node that was not accepted nothing was looked at
    assert log_losses([tree([0.5, 0.4], 0)])[0] == pytest.approx(-math.log(0.5))


def test_the_table() -> None:
    row = compare([[step([0.9, 0.8, 0.1], 2)], [step([0.5, 0.4, 0.3], 0)]], TIMES, [1, 3])
    assert row["steps"] == 2 and row["by_rank"] == [0.5]  # of four that were looked at
    assert row["tokens"] == {1: 1.0, 4: 2.0, 8: 2.0, 16: 2.0, 32: 2.0, 64: 2.0}
    assert row["speeds"]["tree 1"] == pytest.approx(2 / 3 * 1e3, abs=0.01)
    assert row["speeds"]["tree 3"] == pytest.approx(4 / 7 * 1e3, abs=0.01)
    assert row["speeds"]["oracle"] == pytest.approx(4 / 5.25 * 1e3, abs=0.01)
    assert row["speeds"]["oracle, no vain blocks"] == pytest.approx(4 / 4.75 * 1e3, abs=0.01)
    head, _, line = markdown([{"cell": "chat", "temperature": 0.8, **row}], "Here.").splitlines()[:3]
    columns = dict(zip(*([cell.strip() for cell in text.strip("|").split("|")] for text in (head, line)), strict=True))
    assert columns["temperature"] == "0.8" and columns["tree 1"] == "667" and columns["oracle"] == "762"
