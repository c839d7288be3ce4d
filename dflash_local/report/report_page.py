"""The page: a record as self-contained HTML."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dflash_local.report import plots
from dflash_local.report.bench_record import DRAFTED, Record
from dflash_local.report.document import document
from dflash_local.report.drawing import Drawing


class Key(NamedTuple):
    """An entry of a legend."""

    sign: Drawing
    name: str


class Figure(NamedTuple):
    """A plot with its title, legend and explanation."""

    title: str
    drawing: Drawing
    text: str
    legend: tuple[Key, ...] = ()


class Way(NamedTuple):
    """One prompt's answers by one system."""

    title: str
    speeds: str
    al: float


def report_page(record: Record) -> str:
    looks = plots.Looks(record)
    return document(
        "page.html",
        record=record,
        environment=record.environment,
        ours=record.ours,
        base=record.base,
        headline=_headline(record),
        figures=[_speeds(record), _prompts(record, looks)],
        small_figures=_small_figures(record),
        reasons=_reasons(record),
        answers=_answers(record),
        title=plots.title,
        key=lambda name: _key(partial(looks.mark, name=name), name).sign,
    )


def _headline(record: Record) -> str:
    if record.ours is record.base:
        return f"{record.base.tokens_per_second:.1f} tokens per second"
    return f"{record.ratio(record.ours):.2f}× the speed of plain decoding"


def _speeds(record: Record) -> Figure:
    text = (
        f"The median of {record.environment.repeats} repeats; each ring is one repeat over all prompts. The number "
        "behind it is the speed over dflash-local's own plain decoding."
    )
    return Figure("Speed", plots.speeds(record), text)


def _prompts(record: Record, looks: plots.Looks) -> Figure:
    legend = tuple(_key(partial(looks.mark, name=system.name), plots.title(system.name)) for system in record.shown())
    text = "A mark is the median of the repeats, the line behind it goes from the slowest to the fastest."
    return Figure("Prompt by prompt", plots.prompts(record), text, legend)


def _small_figures(record: Record) -> list[Figure]:
    """The figures for which the record has data."""
    figures = []
    engine = record.engine.get(DRAFTED)
    if record.ours.acceptance:
        text = "How far passes get before the target disagrees with all branches of the tree."
        figures.append(Figure("Acceptance by depth", plots.acceptance(record), text))
    if record.costs.verify_ms or record.costs.draft_ms:
        legend: tuple[Key, ...] = (
            _key(partial(plots.mark_cost, name="verify"), "target, by rows"),
            _key(partial(plots.mark_cost, name="draft"), "drafter, by block"),
            _key(_dashes, "as many plain passes"),
        )
        text = "What a pass costs on this machine. Drafting pays as far as many rows cost less than as many passes."
        figures.append(Figure("Cost of a pass", plots.costs(record), text, legend))
    if engine and engine.nodes:
        text = "How many nodes the controller chose to verify at once; 1 is plain decoding."
        figures.append(Figure("Size of the trees", plots.nodes(record), text))
    if any(engine.phase_shares for engine in record.engine.values()):
        legend = tuple(_key(partial(_block, kind=phase), name) for phase, name in plots.PHASE_TITLES.items())
        text = "Shares of the engine's time. The drafter's is the price of the passes that the target is spared."
        figures.append(Figure("Where the time goes", plots.shares(record), text, legend))
    return figures


def _key(mark: Callable[..., None], name: str) -> Key:
    sign = Drawing(14, 14, "")
    mark(sign, x=7, y=7)
    return Key(sign, name)


def _dashes(drawing: Drawing, x: float, y: float) -> None:
    drawing.line(x - 7, y, x + 7, y, "curve alone")


def _block(drawing: Drawing, kind: str, x: float, y: float) -> None:
    drawing.square(x, y, 6, kind)


def _answers(record: Record) -> list[tuple[str, list[Way]]]:
    """The numbered prompts, with each system's answers."""
    by_system = [
        [
            Way(plots.title(system.name), ", ".join(f"{speed:.1f}" for speed in speeds), al)
            for speeds, al in zip(system.by_prompt(), system.al_by_prompt(), strict=True)
        ]
        for system in record.systems
    ]
    numbered = (f"{number} {text}" for number, text in enumerate(record.beginnings, 1))
    return [(prompt, list(ways)) for prompt, *ways in zip(numbered, *by_system, strict=True)]


def _reasons(record: Record) -> list[tuple[str, int, float]]:
    """The controller's reasons with count and share, the most frequent first."""
    engine = record.engine.get(DRAFTED)
    reasons = (engine.reasons if engine else None) or {}
    total = sum(reasons.values()) or 1
    return [(reason, n, n / total) for reason, n in sorted(reasons.items(), key=lambda item: -item[1])]
