"""The report of a training run as self-contained HTML: AL and loss over time, AL by depth, speeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dflash_local.report.document import document
from dflash_local.report.drawing import Drawing
from dflash_local.report.plots import NARROW, axis_rows
from dflash_local.report.scale import Scale

if TYPE_CHECKING:
    from dflash_local.train.evaluation import Evaluation
    from dflash_local.train.train_settings import TrainSettings
    from dflash_local.train.training import Result


def train_page(result: Result, settings: TrainSettings) -> str:
    first = next((point for point in result.evaluations if point.step == 0), None)  # of the drafter that it began with
    figures = [
        ("Acceptance length", lengths(result.evaluations),
         f"In the engine, on held-out prompts, trees of {settings.budget} nodes."),
        ("Loss", losses(list(zip(result.course["steps"], result.course["entropy"], strict=True))),
         "Mean cross-entropy of a proposed token, by the share of the fit's steps."),
        ("Acceptance by depth", depths(result.best, first),
         "How far passes got: dashed at the start, filled at the best."),
    ]  # fmt: skip
    facts = {name: value for name, value in result.history.items() if value is not None}
    return document("train_page.html", result=result, settings=settings, first=first, figures=figures, facts=facts)


def lengths(evaluations: Sequence[Evaluation]) -> Drawing:
    """AL of each evaluation."""
    points = [(point.step, point.al) for point in evaluations]
    tips = [f"step {point.step}: AL {point.al:.2f}" for point in evaluations]
    return _line(points, tips, "tokens per pass (AL)", "Acceptance length over the fit")


def losses(points: Sequence[tuple[float, float]]) -> Drawing:
    """The loss by the steps, at most a hundred points."""
    every = max(1, len(points) // 100)
    return _line(points[::every], [], "nats per token", "Loss over the fit")


def _line(points: Sequence[tuple[float, float]], tips: Sequence[str], axis: str, label: str) -> Drawing:
    drawing = Drawing(NARROW, 270, label)
    x = Scale(100, 46, NARROW - 16, 4)
    y = Scale(max((value for _, value in points), default=1.0), 220, 26)
    axis_rows(drawing, y, x.start, x.end, axis)
    for mark in x.ticks():
        drawing.text(x.at(mark), 238, x.label(mark), "tick", "middle")
    drawing.text((x.start + x.end) / 2, 260, "% of the fit", "axis", "middle")
    n_steps = max((step for step, _ in points), default=1)  # shares would fall back where a fit was extended
    places = [(x.at(100 * step / max(n_steps, 1)), y.at(value)) for step, value in points]
    if len(places) > 1:
        drawing.polyline(places, "curve s1")
    for (at_x, at_y), tip in zip(places, tips, strict=False):
        drawing.circle(at_x, at_y, 4, "s1", tip)
    return drawing


def depths(best: Evaluation, first: Evaluation | None) -> Drawing:
    """Shares of passes by accepted draft tokens, before and after."""
    drawing = Drawing(NARROW, 270, "Share of passes by the least number of accepted draft tokens")
    after, before = best.depths, first.depths if first else ()
    n = max(len(after), len(before), 6)
    x, y = Scale(n, 46, NARROW - 8, 5, exact=True), Scale(100, 220, 26)
    axis_rows(drawing, y, x.start, x.end, "% of passes")
    slot = (x.end - x.start) / n
    for depth, share in enumerate(after, 1):
        middle = x.start + slot * (depth - 0.5)
        drawing.rect(middle - 0.36 * slot, y.at(100 * share), 0.72 * slot, 220 - y.at(100 * share), "bar s1",
                     f"{share:.1%} of the passes accepted {depth} or more")  # fmt: skip
        drawing.text(middle, 238, str(depth), "tick", "middle")
    if before:
        drawing.polyline(
            [(x.start + slot * (d + 0.5), y.at(100 * share)) for d, share in enumerate(before)], "curve alone"
        )
    drawing.text((x.start + x.end) / 2, 260, "accepted draft tokens, at least", "axis", "middle")
    return drawing
