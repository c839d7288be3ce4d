"""Plots of a record. Systems differ in shape as well as in colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from dflash_local.report.bench_record import DRAFTED, PLAIN, Record, System
from dflash_local.report.drawing import Drawing, text_width
from dflash_local.report.scale import Scale

WIDE, NARROW = 920.0, 450.0  # width of a whole row of the page, and of half a row
_GAP = 12.0
# The phases of a step in three groups: the target, the drafter, and all else.
_PHASES = {"verify": ("verify",), "draft": ("draft",), "other": ("plan", "walk", "commit", "grow", "other")}
PHASE_TITLES = {"verify": "the target's passes", "draft": "the drafter's passes", "other": "all else"}


def title(name: str) -> str:
    """The name of a way of decoding for readers who do not know `bench`."""
    ours = {PLAIN: "dflash-local, plain", DRAFTED: "dflash-local, drafted"}
    return ours.get(name) or name.replace("upstream", "llama.cpp", 1)


class Looks:
    """A class of the style sheet and a shape for each system: s0 is plain decoding, s1 ours, then the kinds of
    baselines."""

    def __init__(self, record: Record) -> None:
        kinds = dict.fromkeys(_kind(system.name) for system in record.systems)
        others = [kind for kind in kinds if kind not in (PLAIN, DRAFTED)]
        self._places = {PLAIN: 0, DRAFTED: 1} | {kind: 2 + i % 5 for i, kind in enumerate(others)}

    def kind(self, name: str) -> str:
        return f"s{self._places[_kind(name)]}"

    def mark(self, drawing: Drawing, name: str, x: float, y: float, tip: str = "") -> None:
        """Draw the system's shape at a point."""
        shapes: tuple[Callable[..., None], ...] = (drawing.square, drawing.circle, drawing.diamond, drawing.triangle)
        shapes[min(self._places[_kind(name)], 3)](x, y, 5, self.kind(name), tip)


def _kind(name: str) -> str:
    """A system's name, without a baseline's draft length."""
    return name.partition(",")[0]


def speeds(record: Record) -> Drawing:
    """Tokens per second of each system: a bar for the median, a ring for each repeat."""
    systems = sorted(record.systems, key=lambda system: -system.tokens_per_second)
    looks, row = Looks(record), 40.0
    left = _label_width([title(system.name) for system in systems], 230)
    drawing = Drawing(WIDE, row * len(systems) + 46, "Tokens per second of each way of decoding", "wide")
    scale = Scale(max((max(system.repeats()) for system in systems), default=0), left, WIDE - 110)
    _columns(drawing, scale, 4, row * len(systems) + 4, "tokens per second, after each answer's first")
    for i, system in enumerate(systems):
        middle = 4 + row * (i + 0.5)
        speed = system.tokens_per_second
        drawing.text(left - _GAP, middle + 4.5, title(system.name), _strong(system), "end", left - _GAP)
        drawing.rect(left, middle - 11, scale.at(speed) - left, 22, looks.kind(system.name), f"{speed:.1f} tok/s")
        for repeat in system.repeats():
            drawing.circle(scale.at(repeat), middle, 3, "ring", f"{repeat:.1f} tok/s in one repeat")
        right = scale.at(max([speed, *system.repeats()])) + 10
        ratio = "" if system is record.base else f" · {record.ratio(system):.2f}×"
        drawing.text(right, middle + 4.5, f"{speed:.1f}{ratio}", _strong(system))
    return drawing


def prompts(record: Record) -> Drawing:
    """For each prompt: tokens per second of the systems with the spread of the repeats, and AL of ours."""
    systems, looks, ours = record.shown(), Looks(record), record.ours
    n = record.prompts
    row = 26.0 if n <= 40 else 18.0
    left = _label_width([_numbered(i, text) for i, text in enumerate(record.beginnings)], 330)
    bottom = 4 + row * n
    drawing = Drawing(WIDE, bottom + 42, "Tokens per second and tokens per pass for each prompt", "wide")
    of_prompts = {system.name: system.by_prompt() for system in systems}
    edge = WIDE - 190 if ours.drafts else WIDE - 20
    speed = Scale(max((max(of) for by in of_prompts.values() for of in by), default=0), left, edge)
    _columns(drawing, speed, 4, bottom, "tokens per second")
    for i, text in enumerate(record.beginnings):
        middle = 4 + row * (i + 0.5)
        drawing.text(0, middle + 4, _numbered(i, text), "", width=left - _GAP)
        for system in systems:
            repeats = of_prompts[system.name][i]
            drawing.line(
                speed.at(min(repeats)), middle, speed.at(max(repeats)), middle, f"span {looks.kind(system.name)}"
            )
        for system in systems:
            at = median(of_prompts[system.name][i])
            looks.mark(drawing, system.name, speed.at(at), middle, tip=f"{title(system.name)}: {at:.1f} tok/s")
    if ours.drafts:
        _lengths(drawing, ours.al_by_prompt(), row, bottom, f"bar {looks.kind(ours.name)}")
    return drawing


def _lengths(drawing: Drawing, lengths: Sequence[float], row: float, bottom: float, kind: str) -> None:
    """The right panel of `prompts`."""
    scale = Scale(max(lengths), WIDE - 160, WIDE - 40, 3)
    _columns(drawing, scale, 4, bottom, "tokens per pass (AL)")
    for i, length in enumerate(lengths):
        middle = 4 + row * (i + 0.5)
        drawing.rect(scale.start, middle - 5, scale.at(length) - scale.start, 10, kind, f"AL {length:.2f}")
        drawing.text(scale.at(length) + 5, middle + 4, f"{length:.1f}", "small")


def acceptance(record: Record) -> Drawing:
    """The share of passes that accepted at least 1, 2, ... draft tokens."""
    shares = record.ours.acceptance
    tips = [f"{share:.1%} of the passes accepted {depth} or more" for depth, share in enumerate(shares, 1)]
    return _bars(
        [str(depth) for depth in range(1, len(shares) + 1)],
        [100 * share for share in shares],
        tips,
        ("accepted draft tokens, at least", "% of passes"),
        "Share of passes by the least number of accepted draft tokens",
        most=100,
    )


def nodes(record: Record) -> Drawing:
    """The sizes of the verified trees."""
    counts = record.engine[DRAFTED].nodes or {}
    total = sum(counts.values()) or 1
    sizes = sorted(counts)
    return _bars(
        [str(size) for size in sizes],
        [100 * counts[size] / total for size in sizes],
        [f"{size} nodes: {counts[size]} passes" for size in sizes],
        ("nodes of the tree, the anchor counted", "% of passes"),
        "Share of passes by the nodes of the tree",
    )


def costs(record: Record) -> Drawing:
    """Milliseconds of a pass by its width."""
    curves = {"verify": record.costs.verify_ms, "draft": record.costs.draft_ms}
    points = {name: sorted(curve.items()) for name, curve in curves.items() if curve}
    drawing = Drawing(NARROW, 270, "Milliseconds of a pass by its rows")
    x = Scale(max(n for line in points.values() for n, _ in line), 46, NARROW - 16, 4, exact=True)
    y = Scale(max(ms for line in points.values() for _, ms in line), 220, 26)
    axis_rows(drawing, y, x.start, x.end, "milliseconds")
    for mark in x.ticks():
        drawing.text(x.at(mark), 238, x.label(mark), "tick", "middle")
    drawing.text((x.start + x.end) / 2, 260, "rows of a pass, or tokens of a block", "axis", "middle")
    if alone := record.costs.verify_ms.get(1):
        most = min(y.high / alone, x.high)  # where the line of plain passes leaves the plot
        drawing.polyline([(x.at(0), y.at(0)), (x.at(most), y.at(most * alone))], "curve alone")
    for name, line in points.items():
        drawing.polyline([(x.at(n), y.at(ms)) for n, ms in line], f"curve {name}")
        for n, ms in line:
            mark_cost(drawing, name, x.at(n), y.at(ms), f"{n}: {ms:.2f} ms")
    return drawing


def mark_cost(drawing: Drawing, name: str, x: float, y: float, tip: str = "") -> None:
    """Draw the shape of the target's or the drafter's passes."""
    (drawing.circle if name == "verify" else drawing.diamond)(x, y, 3.5, name, tip)


def shares(record: Record) -> Drawing:
    """Where the engine's time went."""
    engines = [(name, engine) for name, engine in record.engine.items() if engine.phase_shares]
    left, row = _label_width([title(name) for name, _ in engines], 170), 46.0
    drawing = Drawing(NARROW, row * len(engines) + 48, "Share of the time by phase")
    scale = Scale(100, left, NARROW - 16, 4)
    _columns(drawing, scale, 4, 4 + row * len(engines), "% of the time, prompts included")
    for i, (name, engine) in enumerate(engines):
        top, at = 4 + row * i + 9, 0.0
        drawing.text(left - _GAP, top + 18, title(name), "", "end", left - _GAP)
        for phase, share in _three(engine.phase_shares).items():
            start, end = scale.at(100 * at), scale.at(100 * (at + share))
            drawing.rect(start, top, end - start - 1.5, row - 18, phase, f"{PHASE_TITLES[phase]}: {share:.1%}")
            if end - start > 36:
                drawing.text((start + end) / 2, top + 18.5, f"{share:.0%}", f"on {phase}", "middle")
            at += share
    return drawing


def _three(shares: Mapping[str, float]) -> dict[str, float]:
    return {name: sum(shares.get(phase, 0.0) for phase in phases) for name, phases in _PHASES.items()}


def _bars(
    labels: Sequence[str],
    values: Sequence[float],
    tips: Sequence[str],
    axes: tuple[str, str],
    label: str,
    most: float | None = None,
) -> Drawing:
    """Vertical bars in our own system's colour."""
    drawing = Drawing(NARROW, 270, label)
    scale = Scale(most if most is not None else max(values, default=0), 220, 26)
    left, right = 46.0, NARROW - 8
    axis_rows(drawing, scale, left, right, axes[1])
    slot = (right - left) / max(len(values), 6)
    every = -(-len(values) * 24 // int(right - left))  # labels of 24 pixels
    for i, (name, value, tip) in enumerate(zip(labels, values, tips, strict=True)):
        middle = left + slot * (i + 0.5)
        width = min(0.72 * slot, 34)
        drawing.rect(middle - width / 2, scale.at(value), width, 220 - scale.at(value), "bar s1", tip)
        if slot >= 24:
            drawing.text(middle, scale.at(value) - 5, _percent(value), "small", "middle")
        if i % every == 0:
            drawing.text(middle, 238, name, "tick", "middle")
    drawing.text((left + right) / 2, 260, axes[0], "axis", "middle")
    return drawing


def _percent(value: float) -> str:
    return f"{value:.0f}" if value >= 1 or value == 0 else "<1"


def _columns(drawing: Drawing, scale: Scale, top: float, bottom: float, name: str) -> None:
    """The axis at the bottom: its ticks with vertical lines, and its name."""
    for mark in scale.ticks():
        drawing.line(scale.at(mark), top, scale.at(mark), bottom, "grid" if mark else "zero")
        drawing.text(scale.at(mark), bottom + 17, scale.label(mark), "tick", "middle")
    drawing.text((scale.start + scale.end) / 2, bottom + 36, name, "axis", "middle")


def axis_rows(drawing: Drawing, scale: Scale, left: float, right: float, name: str) -> None:
    """The axis on the left: its ticks with horizontal lines, and its name above."""
    for mark in scale.ticks():
        drawing.line(left, scale.at(mark), right, scale.at(mark), "grid" if mark else "zero")
        drawing.text(left - 8, scale.at(mark) + 4, scale.label(mark), "tick", "end")
    drawing.text(0, 12, name, "axis")


def _label_width(labels: Iterable[str], most: float) -> float:
    return min(max(map(text_width, labels), default=0.0) + _GAP + 6, most)


def _numbered(index: int, text: str) -> str:
    return f"{index + 1}  {text}"


def _strong(system: System) -> str:
    return "strong" if system.name == DRAFTED else ""
