"""Draw docs/figures/*.svg from benchmarks/results/*.json, without measuring anything.

Usage: python benchmarks/plot.py [--results DIR] [--figures DIR] [NAME ...]

The same JSON gives the same bytes: no dates, no random ids. Figures have a white background, readable on light and dark
pages; the README's have a second version with a dark one. The colours are those of Okabe and Ito, for colour-blind
readers.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

HERE = Path(__file__).resolve().parent
BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, GREY = "#cc79a7", "#56b4e9", "#777777"
PLAIN, UPSTREAM, OURS, STOCK = "plain", "upstream's best", "dflash-local", "stock kernels"
OWN_PLAIN, PEERS = f"{OURS}, no drafts", {"ik": "ik_llama.cpp"}
SYSTEMS = {PLAIN: GREY, UPSTREAM: ORANGE, OURS: BLUE}
COLOURS = {**SYSTEMS, OWN_PLAIN: SKY}
STACKED = ("draft", "verify", "grow", "walk", "commit", "plan", "other")  # a step's PHASES (dflash_local.stats)
DRAFTER_COLOURS = {"dflash": BLUE, "dflash2": GREEN, "dflash-small": RED}
STYLE: Any = {
    "svg.hashsalt": "dflash-local",  # stable ids of clip paths
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 10,
    "figure.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
}
INK = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
# GitHub's dark page
DARK: Any = {
    **STYLE,
    **dict.fromkeys(INK, "#e6edf3"),
    "figure.facecolor": "#0d1117",
    "axes.facecolor": "#0d1117",
    "grid.color": "#30363d",
}
PAIRS = {
    "dflash": "DFlash drafter",
    "dflash2": "DFlash 2 drafter",
    "dflash-small": "weak DFlash drafter",
    "hybrid": "hybrid target",
}

Data = dict[str, Any]


def compare_upstream(data: Data) -> Figure:
    """Tokens per second of each cell: plain, upstream's best, ours."""
    cells = data["cells"]
    figure = Figure((max(6.0, 0.62 * len(cells) + 1.5), 4.2))
    ax = figure.subplots()
    for k, (label, colour) in enumerate(SYSTEMS.items()):
        heights = [_speed(cell, label) for cell in cells]
        ax.bar([i + 0.27 * (k - 1) for i in range(len(cells))], heights, 0.25, label=label, color=colour)
    labels = [f"{cell['drafter']}\n{cell['ftype'].upper()}\nT {cell['temperature']:g}" for cell in cells]
    ax.set_xticks(range(len(cells)), labels, fontsize=7)
    ax.set_ylabel("tokens per second")
    ax.grid(axis="x", visible=False)
    ax.margins(x=0.01)
    figure.legend(ncols=3, loc="outside upper center")
    return figure


def speed_up(data: Data) -> Figure:
    """Tokens per second over plain decoding's, one group of bars for each pair: the geometric mean over its types and
    temperatures."""
    groups: dict[str, list[Data]] = {}
    for cell in data["cells"]:
        groups.setdefault(cell["drafter"], []).append(cell)
    ratios = {
        system: [
            statistics.geometric_mean(_speed(cell, system) / _speed(cell, PLAIN) for cell in cells)
            for cells in groups.values()
        ]
        for system in SYSTEMS
    }
    labels = []
    for drafter, cells in groups.items():
        al = statistics.fmean(cell["systems"][OURS]["al"] for cell in cells)
        labels.append(f"{PAIRS.get(drafter, drafter)}\n{al:.0f} tokens per pass")
    return _over_plain(labels, ratios)


def real_pair(data: Data) -> Figure:
    """The README's figure: tokens per second over plain decoding's, one group of bars for each kind of prompt: the
    geometric mean over the temperatures."""
    groups: dict[str, list[Data]] = {}
    for row in data["rows"]:
        groups.setdefault(row["kind"], []).append(row)
    peers = [name for name in data["rows"][0]["bases"] if name not in (PLAIN, "upstream", OWN_PLAIN)]
    bases = {UPSTREAM: "upstream", **{f"{PEERS.get(name, name)}'s best": name for name in peers}, OWN_PLAIN: OWN_PLAIN}

    def mean(rows: Sequence[Data], base: str | None) -> float:
        """Of a base, over plain decoding; None: ours."""
        ours = (statistics.median(row["over"][PLAIN]) for row in rows)
        return statistics.geometric_mean(
            over / (statistics.median(row["over"][base]) if base else 1) for over, row in zip(ours, rows, strict=True)
        )

    ratios = {label: [mean(rows, base) for rows in groups.values()] for label, base in [*bases.items(), (OURS, None)]}
    als = [statistics.fmean(row["al"][OURS] for row in rows) for rows in groups.values()]
    return _over_plain([f"{kind}\n{al:.1f} tokens per pass" for kind, al in zip(groups, als, strict=True)], ratios)


def _over_plain(labels: Sequence[str], ratios: dict[str, list[float]]) -> Figure:
    """A group of bars for each label; `ratios`: by system, of plain decoding's speed."""
    figure = Figure((8.0, (0.2 + 0.2 * len(ratios)) * len(labels) + 1.0))
    figure.set_layout_engine("constrained", w_pad=0.15)  # room for labels in a wider font of the reader's
    ax = figure.subplots()
    width = 0.81 / len(ratios)
    for k, (system, values) in enumerate(ratios.items()):
        places = [i + width * (k - (len(ratios) - 1) / 2) for i in range(len(labels))]
        label = "plain decoding" if system == PLAIN else system
        ax.barh(places, values, 0.93 * width, color=COLOURS.get(system, PURPLE), label=label)
        for place, ratio in zip(places, values, strict=True):
            weight = "bold" if system == OURS else "normal"
            ax.text(ratio + 0.06, place, f"{ratio:.1f}\u00d7", va="center", fontsize=10, fontweight=weight)
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    ax.set_xlabel("tokens per second, over plain decoding (longer is better)")
    ax.set_xlim(0, 1.04 * ax.get_xlim()[1])
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    figure.legend(ncols=len(ratios), loc="outside upper center")
    return figure


def _speed(cell: Data, system: str) -> float:
    """Tokens per second in a cell."""
    return float(cell["systems"][_name(cell, system)]["tokens_per_second"])


def _name(measured: Data, system: str) -> str:
    """What a cell or row calls one of SYSTEMS."""
    return str(measured["best_upstream"]) if system == UPSTREAM else system


def concurrency(data: Data) -> Figure:
    """Throughput against clients."""
    rows = data["rows"]
    figure = Figure((6.4, 4.2))
    ax = figure.subplots()
    clients = [row["clients"] for row in rows]
    for (label, colour), marker in zip(SYSTEMS.items(), "s^o", strict=True):
        speeds = [row["tokens_per_second"][_name(row, label)] for row in rows]
        ax.plot(clients, speeds, marker=marker, color=colour, label=label)
    _powers_of_two(ax, clients)
    ax.set(xlabel="concurrent clients", ylabel="tokens per second, all clients together", ylim=(0, None))
    ax.legend()
    return figure


def trees(data: Data) -> Figure:
    """AL of trees and chains against the budget, a panel per temperature."""
    rows = data["rows"]
    temperatures = list(dict.fromkeys(row["temperature"] for row in rows))
    figure = Figure((4.4 * len(temperatures) + 0.4, 4.2))
    panels = figure.subplots(1, len(temperatures), sharey=True, squeeze=False)[0]
    for ax, temperature in zip(panels, temperatures, strict=True):
        for drafter in dict.fromkeys(row["drafter"] for row in rows):
            line = [row for row in rows if (row["drafter"], row["temperature"]) == (drafter, temperature)]
            budgets, colour = [row["budget"] for row in line], DRAFTER_COLOURS.get(drafter, GREY)
            for shape, style in (("tree", "-o"), ("chain", "--s")):
                als = [row[shape] for row in line]
                ax.plot(budgets, als, style, ms=4, color=colour, label=f"{drafter}, {shape}")
        _powers_of_two(ax, sorted({row["budget"] for row in rows}))
        ax.set(xlabel="nodes per pass, the anchor counted", title=f"temperature {temperature:g}", ylim=(0, None))
    panels[0].set_ylabel("AL: tokens per target pass")
    panels[0].legend(fontsize=8)
    return figure


def steps(data: Data) -> Figure:
    """Milliseconds of a step by phase."""
    bars = {"budget auto": data["auto"]["ms_per_step"], "64 nodes": data["most_nodes"]["ms_per_step"]}
    figure = Figure((6.4, 2.6))
    ax = figure.subplots()
    colours = (ORANGE, BLUE, GREEN, PURPLE, RED, SKY, GREY)
    for title, phases in bars.items():
        left = 0.0
        for phase, colour in zip(STACKED, colours, strict=True):
            ms = phases.get(phase, 0.0)
            ax.barh(title, ms, left=left, color=colour, label=phase if title == "budget auto" else None)
            left += ms
    ax.set_xlabel("milliseconds per step")
    ax.grid(axis="y", visible=False)
    ax.invert_yaxis()
    figure.legend(ncols=len(STACKED), loc="outside upper center", fontsize=8)
    return figure


def cost_curve(data: Data) -> Figure:
    """The cost of a pass by its width: lines as measured at load, crosses as corrected by the passes of answers."""
    figure = Figure((6.4, 4.2))
    ax = figure.subplots()
    labels = {"verify": "target, by rows of the pass", "draft": "drafter, by tokens of the block"}
    for (name, label), colour in zip(labels.items(), (BLUE, ORANGE), strict=True):
        for time, style, size, note in (("at_load", "-o", 4, ""), ("kept_fresh", "x", 6, ", after some answers")):
            rows, times = zip(*sorted((int(n), ms) for n, ms in data["cost"][time][name].items()), strict=True)
            ax.plot(rows, times, style, ms=size, color=colour, label=label + note)
    ax.set(
        xlabel="rows of a pass, or tokens of a block", ylabel="milliseconds per pass", xlim=(0, None), ylim=(0, None)
    )
    ax.legend()
    return figure


def choices(data: Data) -> Figure:
    """What the controller chose, step by step, and what was accepted."""
    trace = data["trace"]
    reasons = list(dict.fromkeys(step["reason"] for step in trace))
    figure = Figure((9.0, 4.6))
    ax, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 0.4 + 0.35 * len(reasons)))
    x = range(1, len(trace) + 1)
    ax.bar(x, [step["n_tokens"] for step in trace], 1.0, color=SKY, label="tokens that the step gave")
    ax.step(x, [step["n_nodes"] for step in trace], where="mid", color=BLUE, label="nodes verified, the anchor counted")
    denoised, label = [step["n_denoised"] for step in trace], "tokens denoised (0: no drafter pass)"
    ax.step(x, denoised, where="mid", color=ORANGE, lw=1.0, ls="--", label=label)
    ax.set(ylabel="tokens or nodes", ylim=(0, None))
    figure.legend(ncols=3, loc="outside upper center", fontsize=8)
    colours = (GREEN, RED, PURPLE, GREY, ORANGE, BLUE)
    for k, reason in enumerate(reasons):
        at = [i for i, step in zip(x, trace, strict=True) if step["reason"] == reason]
        below.plot(at, [k] * len(at), "|", ms=9, mew=1.5, color=colours[k % len(colours)])
    below.set_yticks(range(len(reasons)), reasons, fontsize=8)
    below.set(xlabel="step of the answer", ylim=(-0.6, len(reasons) - 0.4))
    below.invert_yaxis()
    return figure


def roofline(data: Data) -> Figure:
    """Milliseconds of a pass against its rows, with the most threads: stock, ours and the roofline, a panel per
    type."""
    threads, rows = _widest(data)
    kinds = list(dict.fromkeys(row["type"] for row in rows))
    figure = Figure((3.4 * len(kinds) + 0.6, 4.4))
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for ax, kind in zip(panels, kinds, strict=True):
        line = [row for row in rows if row["type"] == kind]
        widths = [row["n"] for row in line]
        for key, label, colour, style in (("stock", STOCK, GREY, "-s"), ("our", "ours", BLUE, "-o")):
            ax.plot(widths, [row[f"{key}_ms"] for row in line], style, ms=4, color=colour, label=label)
            low, high = zip(*(row[f"{key}_spread"] for row in line), strict=True)
            ax.fill_between(widths, low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(widths, [row["roofline_ms"] for row in line], "--", ms=4, color=RED, label="roofline")
        _powers_of_two(ax, [n for n in widths if n & (n - 1) == 0])
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.set(xlabel="rows of the pass", title=kind.upper())
    panels[0].set_ylabel(f"milliseconds per pass, {threads} threads")
    panels[0].legend(fontsize=8)
    return figure


def roofline_classic(data: Data) -> Figure:
    """The roofline in its usual form: multiply-adds per second against multiply-adds per byte of weights, with the
    machine's ceilings."""
    threads, rows = _widest(data)
    ceilings = data["ceilings"][str(threads)]
    figure = Figure((7.4, 5.0))
    ax = figure.subplots()
    int8, tile = ceilings["int8"], ceilings["tile"]
    points: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        model = data["models"][row["type"]]
        macs, n_bytes = row["n"] * sum(model["macs"].values()), sum(model["bytes"].values())
        at = (macs / n_bytes, macs / row["stock_ms"] / 1e6, macs / row["our_ms"] / 1e6)
        points.setdefault(row["type"], []).append(at)
    first = min(x for line in points.values() for x, *_ in line) / 1.5
    last = max(x for line in points.values() for x, *_ in line) * 1.5
    speeds = sorted((int(size), speed) for size, speed in ceilings["read"].items())
    for (size, speed), style in zip(speeds, ("-", "--", "-.", ":", ":", ":"), strict=False):
        label = f"{speed:.0f} GB/s over {size / 1e6:.0f} MB"
        ax.plot([first, int8 / speed], [first * speed, int8], style, color=RED, lw=1, label=label)
    note: Data = {"ha": "right", "va": "bottom", "fontsize": 8}
    ax.plot([int8 / max(speed for _, speed in speeds), last], [int8] * 2, color=RED, lw=1)
    ax.annotate(f"{ceilings['instruction']}: {int8:.0f}", (last, int8), color=RED, **note)
    if tile:
        ax.axhline(tile, color=PURPLE, lw=1)
        ax.annotate(f"AMX tiles: {tile:.0f}", (last, tile), color=PURPLE, **note)
    for (kind, line), colour in zip(points.items(), (BLUE, GREEN, ORANGE, SKY, PURPLE, RED, GREY), strict=False):
        x = [at for at, *_ in line]
        ax.plot(x, [ours for *_, ours in line], "-o", ms=4, color=colour, label=f"{kind.upper()}, ours")
        ax.plot(x, [stock for _, stock, _ in line], ":s", ms=3, color=colour, label=f"{kind.upper()}, stock")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.set(
        xlabel="multiply-adds per byte of weights",
        ylabel=f"10⁹ multiply-adds per second, {threads} threads",
        xlim=(first, last),
    )
    ax.legend(fontsize=7, ncols=2)
    return figure


def _widest(data: Data) -> tuple[int, list[Data]]:
    """The highest number of threads, and its rows."""
    threads = max(row["threads"] for row in data["rows"])
    return threads, [row for row in data["rows"] if row["threads"] == threads]


def _powers_of_two(ax: Axes, ticks: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(ticks))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())


# figure: its record, and the function that draws it
FIGURES: dict[str, tuple[str, Callable[[Data], Figure]]] = {
    "speed_up": ("compare_upstream", speed_up),
    "speed_up_dark": ("compare_upstream", speed_up),
    "real_pair": ("real_pair", real_pair),
    "real_pair_dark": ("real_pair", real_pair),
    "compare_upstream": ("compare_upstream", compare_upstream),
    "concurrency": ("concurrency", concurrency),
    "trees": ("trees", trees),
    "steps": ("steps", steps),
    "cost_curve": ("steps", cost_curve),
    "choices": ("steps", choices),
    "roofline": ("verify_cost", roofline),
    "roofline_classic": ("verify_cost", roofline_classic),
}


def draw(name: str, data: Data) -> str:
    """The SVG of one of FIGURES."""
    out = io.StringIO()
    with matplotlib.rc_context(DARK if name.endswith("_dark") else STYLE):
        figure = FIGURES[name][1](data)
        if figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = argparse.ArgumentParser(
        description="Draw docs/figures/*.svg from benchmarks/results/*.json, without measuring anything."
    )
    ap.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which (default: all whose record is there): {', '.join(FIGURES)}"
    )
    ap.add_argument("--results", type=Path, default=HERE / "results", metavar="DIR")
    ap.add_argument("--figures", type=Path, default=HERE.parent / "docs" / "figures", metavar="DIR")
    args = ap.parse_args(argv)
    if unknown := [name for name in args.names if name not in FIGURES]:
        ap.error(f"unknown figure {unknown[0]}: one of {', '.join(FIGURES)}")
    args.figures.mkdir(parents=True, exist_ok=True)
    for name in args.names or FIGURES:
        path = args.results / f"{FIGURES[name][0]}.json"
        if not path.is_file():
            print(f"{name}: {path.name} is not there yet", file=sys.stderr)
            continue
        out = args.figures / f"{name}.svg"
        out.write_text(draw(name, json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
        print(out.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
