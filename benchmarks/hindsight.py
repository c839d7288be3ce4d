"""What the controller loses: the default against every fixed setting that a user could have chosen, with hindsight.

Usage: python benchmarks/hindsight.py [--drafters dflash ...] [--types q4_0 ...] [--temperatures 0 1]
       python benchmarks/hindsight.py --real-pair [--temperatures 0 0.8]
       python benchmarks/hindsight.py --real-pair --modelled
       python benchmarks/hindsight.py --files TARGET.gguf DRAFTER.gguf

In one process, on inflated pairs, the pair of real_pair.py or on two files: all settings answer each prompt in turn.
Fixed settings are trees and chains of a number of nodes, and no drafts; prompt lookup is on in all of them. The best of
them is known only afterwards, and has luck on its side: it is the fastest of many. The pair of real_pair.py answers its
prompts, a cell for each kind; two files of a real model those of lookup.py, without its long ones. --modelled takes
pass times from a table, so that nothing but choices counts: at temperature 0 the figures are the same everywhere.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, real_models, real_pair, record
from benchmarks.answers import acceptance_length, answers
from benchmarks.pass_times import FIXED_COSTS, PassTimes
from benchmarks.systems import order, pick
from dflash_local.demo.pocket import DRAFTERS
from dflash_local.demo.shapes import Pair
from dflash_local.engine import Completion, Engine

DEFAULT, OFF = "default", "off"
# About SmolLM2-135M in Q4_1 and its drafter on two cores, with what a step costs beside its passes.
TIMES = PassTimes(
    {1: 3.05, 2: 3.12, 4: 3.3, 8: 3.7, 10: 4.3, 12: 4.5, 16: 5.4, 20: 6.0, 24: 7.2, 32: 9.8, 48: 14, 64: 18.5},
    [{4: 0.57, 8: 0.75, 10: 0.77}],
    rebuild_ms=0.4,
)
LIMIT = 0.97  # of the best fixed setting's speed
SHORT = 2500  # letters of a prompt


def settings(trees: Sequence[int], chains: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Options of `Engine.submit` by the names of the settings."""
    return {
        DEFAULT: {},
        OFF: {"draft": "off"},
        **{f"tree {n}": {"budget": n, "draft": "tree"} for n in trees},
        **{f"chain {n}": {"budget": n, "draft": "chain"} for n in chains},
    }


def measure(
    engine: Engine, prompts: Sequence[dict[str, Any]], n: int, temperature: float, repeats: int,
    options: dict[str, dict[str, Any]], times: PassTimes | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Tokens per second, by `times` if given, and AL of each setting, over all prompts and repeats; of the default over
    the best fixed one, the ratio, and that of each repeat."""
    options = {name: {**its, **({"trace": True} if times else {})} for name, its in options.items()}
    done: dict[str, list[list[Completion]]] = {name: [] for name in options}
    for repeat in range(repeats):
        for runs in done.values():
            runs.append([])
        for i, prompt in enumerate(prompts):
            for name in order(list(options), repeat * len(prompts) + i):
                if name == DEFAULT:  # what the others have learned of this text it must not know
                    answers(engine, [prompts[i - 1]], n, temperature)
                done[name][-1] += answers(engine, [prompt], n, temperature, **options[name])
    speeds = {name: [speed(run, times) for run in runs] for name, runs in done.items()}
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    best = max((name for name in options if name != DEFAULT), key=medians.__getitem__)
    als = {name: acceptance_length([answer for run in runs for answer in run]) for name, runs in done.items()}
    row = record.ratio_row(speeds[best], speeds[DEFAULT], LIMIT)
    over_off = statistics.median(record.ratios(speeds[OFF], speeds[DEFAULT]))
    return {"best": best, "speeds": speeds, "al": als, "over_off": over_off, **row}


def speed(run: Sequence[Completion], times: PassTimes | None = None) -> float:
    """Tokens per second after each answer's first."""
    ms = [times.milliseconds(answer.steps) if times else answer.timings.predicted_ms for answer in run]
    return sum(answer.timings.n_steps for answer in run) / sum(ms) * 1e3


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    """A line per cell, a column per setting."""
    names = list(rows[0]["speeds"])
    head = ["pair", "temperature", *names, "AL: default, best", "default over the best fixed", "over off"]
    lines = []
    for row in rows:
        shown = {name: f"{statistics.median(values):.0f}" for name, values in row["speeds"].items()}
        shown[row["best"]] = f"**{shown[row['best']]}**"
        als = f"{row['al'][DEFAULT]:.1f}, {row['al'][row['best']]:.1f}"
        ratio = record.ratio_cells(row, LIMIT)[0]
        lines.append([row["pair"], f"{row['temperature']:g}", *(shown[name] for name in names), als, ratio,
                      f"{row['over_off']:.2f}"])  # fmt: skip
    return f"{record.table(head, lines)}\n\nTokens per second, medians of the repeats. {footer}\n"


class Cell(NamedTuple):
    """What is measured at each temperature."""

    name: str
    pair: Pair
    prompts: list[dict[str, Any]]


def chosen_cells(args: Any, files: Sequence[Path] | None) -> Iterator[Cell]:
    """By --real-pair, --files, or the names of inflated pairs."""
    if args.real_pair:
        yield from real_pair_cells(args.limit)
    elif files:
        yield Cell(files[0].stem, Pair(*files), short_prompts(args.limit))
    else:
        prompts = record.read_prompts(args.prompts, args.limit)
        for drafter, ftype in itertools.product(args.drafters, args.types):
            yield Cell(f"{drafter} {ftype.upper()}", pairs.make(args.work, args.shape, ftype, drafter), prompts)


def real_pair_cells(limit: int) -> Iterator[Cell]:
    """A cell for each kind of prompt, at most `limit` of a kind."""
    pair = Pair(real_models.fetch(real_pair.MODEL), real_pair.DRAFTER)
    prompts = record.read_prompts(real_pair.PROMPTS)
    kinds = [prompt.pop("kind") for prompt in prompts]
    for kind in dict.fromkeys(kinds):
        yield Cell(f"{real_pair.MODEL}, {kind}", pair, record.spread(pick(prompts, kinds, kind), limit))


def short_prompts(limit: int) -> list[dict[str, Any]]:
    """Prompts for real models, at most `limit` of them, spread evenly."""
    prompts = [{"messages": prompt["messages"]} for prompt in record.read_prompts(real_models.PROMPTS)]
    short = [prompt for prompt in prompts if len(str(prompt)) < SHORT]
    return record.spread(short, limit)


@contextmanager
def opened(pair: Pair, threads: int, times: PassTimes | None) -> Iterator[Engine]:
    """An engine that measures pass times at the start, or takes `times`."""
    with TemporaryDirectory() as folder:
        costs: Path | bool = False
        if times:
            os.environ[FIXED_COSTS] = "1"
            costs = times.write(Path(folder) / "costs.json")
        with Engine(pair.target, pair.drafter, n_ctx=2048, n_threads=threads, cost_cache=costs) as engine:
            yield engine


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "hindsight", n_predict=160, repeats=3, limit=8)
    record.add_pair_options(ap)
    record.add_pair_choices(ap, DRAFTERS, ["q4_0", "q4_k_m", "q8_0"])
    record.add_temperatures_option(ap, 0.0, 1.0)
    ap.add_argument("--real-pair", action="store_true", help="the pair and the prompts of real_pair.py")
    ap.add_argument("--modelled", action="store_true", help="--real-pair with pass times from a table")
    ap.add_argument("--files", type=Path, nargs=2, metavar=("TARGET", "DRAFTER"), help="a pair of your own")
    ap.add_argument("--trees", nargs="+", type=int, default=[4, 6, 8, 12, 16, 24, 32], metavar="N", help="nodes")
    ap.add_argument("--chains", nargs="+", type=int, default=[4, 8, 16], metavar="N", help="nodes, the anchor counted")
    args = ap.parse_args(argv)
    if args.modelled and not args.real_pair:
        ap.error("--modelled: the table is of --real-pair")
    files = args.files
    args.files = [file.name for file in files] if files else None  # a record has no paths of this machine
    table = record.Table(ap, args, markdown)
    options = settings(args.trees, args.chains)
    times = TIMES if args.modelled else None
    for name, pair, prompts in chosen_cells(args, files):
        with opened(pair, args.threads, times) as engine:
            list(answers(engine, prompts[:2], args.n_predict, 0.0))  # it learns, as a server has
            for temperature in args.temperatures:
                row = measure(engine, prompts, args.n_predict, temperature, args.repeats, options, times)
                record.say(f"{name} T{temperature:g}: {row['best']}, {row['ratio']:.3f}")
                table.add({"pair": name, "temperature": temperature, **row})
    return table.show()


if __name__ == "__main__":
    record.run(main)
