"""Tables of pass times, for measurements in which nothing but the controller's choices counts: the engine takes them in
place of its own, and with DFLASH_FIXED_COSTS=1 keeps them. What answers cost is summed by the same tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dflash_local.generation import Step
from dflash_local.native import Origin

FIXED_COSTS = "DFLASH_FIXED_COSTS"  # of the environment
Curve = Mapping[int, float]  # milliseconds by rows or block tokens


@dataclass(frozen=True)
class PassTimes:
    """Of target passes by rows, and of each drafter's passes by block tokens: DFlash first, then MTP. A pass of another
    width than the one before it costs `rebuild_ms` more."""

    verify: Curve
    drafts: Sequence[Curve]
    rebuild_ms: float = 0.0

    def write(self, path: Path) -> Path:
        """The engine's file of pass times."""
        verify, *drafts = ({str(n): ms for n, ms in curve.items()} for curve in (self.verify, *self.drafts))
        costs = {"format": 4, "verify_ms": verify, "drafts_ms": drafts, "rebuild_ms": self.rebuild_ms, "cell_ms": 0.0}
        path.write_text(json.dumps(costs))
        return path

    def milliseconds(self, steps: Sequence[Step]) -> float:
        """Of an answer's steps; with two drafters they must have their trees."""
        total, drafter, width = 0.0, 0, 0
        for step in steps:
            if len(self.drafts) > 1 and step.tree and len(step.tree.origins) > 1:
                drafter = int(Origin.MTP in step.tree.origins)
            if step.n_nodes:  # not the prompt's last pass
                total += self.verify_ms(step.n_nodes, width)
                width = step.n_nodes
            total += self.draft_ms(step.n_denoised, drafter)
        return total

    def verify_ms(self, rows: int, before: int) -> float:
        """Of a target pass after one of `before` rows (0: none)."""
        return at(self.verify, rows) + (self.rebuild_ms if before not in (0, rows) else 0.0)

    def draft_ms(self, length: int, drafter: int = 0) -> float:
        """Of the pass for a block of so many tokens; up to 1 there is none."""
        return at(self.drafts[drafter], length) if length > 1 else 0.0


def at(curve: Curve, n: int) -> float:
    """Between two points on a line."""
    return float(np.interp(n, list(curve), list(curve.values())))
