"""Tables of pass times: what a step costs by them."""

from __future__ import annotations

import pytest

from benchmarks.drafter_choice import DFLASH, VERIFY, pass_times
from benchmarks.pass_times import PassTimes, at
from dflash_local.generation import Step
from dflash_local.native import Origin, VerifiedTree

MTP = {4: 3.0, 17: 16.0}


def step(n_nodes: int, n_denoised: int, *origins: Origin) -> Step:
    tree = VerifiedTree([0] * n_nodes, [-1] * n_nodes, [], [], [0, *origins], [0]) if origins else None
    return Step(1, n_nodes, 1, n_denoised, 0, "", 0.0, 0.0, tree=tree)


def test_costs() -> None:
    assert at(DFLASH, 4) == 3.0 and at(DFLASH, 6) == 3.5
    prompt, plain = step(0, 0), step(1, 0)
    assert pass_times([DFLASH]).milliseconds([prompt, plain]) == 18
    by_mtp, by_drafter = step(4, 17, Origin.MTP), step(4, 16, Origin.DRAFTER)
    assert pass_times([DFLASH, MTP]).milliseconds([by_mtp, by_drafter]) == pytest.approx(20 + 16 + 20 + 6)


def test_a_pass_of_another_width_builds_its_graph_again() -> None:
    times = PassTimes(VERIFY, [DFLASH], rebuild_ms=0.5)
    assert times.milliseconds([step(0, 0), step(1, 0), step(1, 0), step(4, 4), step(4, 4)]) == 2 * 18 + 2 * 23 + 0.5
