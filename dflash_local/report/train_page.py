"""The report of a training run as self-contained HTML: AL and loss over time, AL by depth, speeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dflash_local.report.document import document
from dflash_local.report.drawing import Drawing
from dflash_local.report.plots import NARROW, axis_rows
from dflash_local.report.scale import Scale


@dataclass(frozen=True)
class Measured:
    """An evaluation. `depths[d]`: the share of passes that accepted more than d draft tokens; `share`: of the fit."""

    share: float
    step: int
    minutes: float
    al: float
    depths: Sequence[float]


@dataclass(frozen=True)
class TrainRecord:
    """A finished run. `losses`: (share of the fit, mean cross-entropy). Speeds in tokens per second; `checks`: AL on
    other prompts before (None: no drafter) and after. `facts`: names and values for the table at the end."""

    target: str
    output: str
    init: str | None
    nodes: int
    measured: Sequence[Measured]
    losses: Sequence[tuple[float, float]]
    plain: float
    drafted: float
    drafted_before: float | None
    checks: Mapping[str, tuple[float | None, float]]
    facts: Mapping[str, Any]

    @property
    def first(self) -> Measured | None:
        """Of the drafter that the run began with."""
        return next((point for point in self.measured if point.step == 0), None)

    @property
    def best(self) -> Measured:
        return max((point for point in self.measured if point.step > 0), key=lambda point: point.al)


def train_page(record: TrainRecord) -> str:
    figures = [
        ("Acceptance length", lengths(record), f"In the engine, on held-out prompts, trees of {record.nodes} nodes."),
        ("Loss", losses(record), "Mean cross-entropy of a proposed token, by the share of the fit."),
        ("Acceptance by depth", depths(record), "How far passes got: dashed at the start, filled at the best."),
    ]  # fmt: skip
    return document("train_page.html", record=record, figures=figures)


def lengths(record: TrainRecord) -> Drawing:
    """AL of each evaluation."""
    points = [(point.share, point.al) for point in record.measured]
    tips = [f"step {point.step}: AL {point.al:.2f}" for point in record.measured]
    return _line(points, tips, "tokens per pass (AL)", "Acceptance length over the fit")


def losses(record: TrainRecord) -> Drawing:
    """The loss over the fit, at most a hundred points."""
    every = max(1, len(record.losses) // 100)
    return _line(list(record.losses)[::every], [], "nats per token", "Loss over the fit")


def _line(points: Sequence[tuple[float, float]], tips: Sequence[str], axis: str, label: str) -> Drawing:
    drawing = Drawing(NARROW, 270, label)
    x = Scale(100, 46, NARROW - 16, 4)
    y = Scale(max((value for _, value in points), default=1.0), 220, 26)
    axis_rows(drawing, y, x.start, x.end, axis)
    for mark in x.ticks():
        drawing.text(x.at(mark), 238, x.label(mark), "tick", "middle")
    drawing.text((x.start + x.end) / 2, 260, "% of the fit", "axis", "middle")
    places = [(x.at(100 * min(share, 1.0)), y.at(value)) for share, value in points]
    if len(places) > 1:
        drawing.polyline(places, "curve s1")
    for (at_x, at_y), tip in zip(places, tips, strict=False):
        drawing.circle(at_x, at_y, 4, "s1", tip)
    return drawing


def depths(record: TrainRecord) -> Drawing:
    """Shares of passes by accepted draft tokens, before and after."""
    drawing = Drawing(NARROW, 270, "Share of passes by the least number of accepted draft tokens")
    best, first = record.best.depths, record.first.depths if record.first else ()
    n = max(len(best), len(first), 6)
    x, y = Scale(n, 46, NARROW - 8, 5, exact=True), Scale(100, 220, 26)
    axis_rows(drawing, y, x.start, x.end, "% of passes")
    slot = (x.end - x.start) / n
    for depth, share in enumerate(best, 1):
        middle = x.start + slot * (depth - 0.5)
        drawing.rect(middle - 0.36 * slot, y.at(100 * share), 0.72 * slot, 220 - y.at(100 * share), "bar s1",
                     f"{share:.1%} of the passes accepted {depth} or more")  # fmt: skip
        drawing.text(middle, 238, str(depth), "tick", "middle")
    if first:
        drawing.polyline(
            [(x.start + slot * (d + 0.5), y.at(100 * share)) for d, share in enumerate(first)], "curve alone"
        )
    drawing.text((x.start + x.end) / 2, 260, "accepted draft tokens, at least", "axis", "middle")
    return drawing
