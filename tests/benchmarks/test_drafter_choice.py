"""drafter_choice.py: what a step costs by its tables."""

from __future__ import annotations

import pytest

from benchmarks.drafter_choice import DFLASH, cost, milliseconds
from dflash_local.generation import Step
from dflash_local.native import Origin, VerifiedTree

MTP = {4: 3.0, 17: 16.0}


def step(n_nodes: int, n_denoised: int, *origins: Origin) -> Step:
    tree = VerifiedTree([0] * n_nodes, [-1] * n_nodes, [], [], [0, *origins], [0]) if origins else None
    return Step(1, n_nodes, 1, n_denoised, 0, "", 0.0, 0.0, tree=tree)


def test_costs() -> None:
    assert cost(DFLASH, 4) == 3.0 and cost(DFLASH, 6) == 3.5
    prompt, plain = step(0, 0), step(1, 0)
    assert milliseconds([prompt, plain], [DFLASH]) == 18
    by_mtp, by_drafter = step(4, 17, Origin.MTP), step(4, 16, Origin.DRAFTER)
    assert milliseconds([by_mtp, by_drafter], [DFLASH, MTP]) == pytest.approx(20 + 16 + 20 + 6)
