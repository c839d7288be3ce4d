"""DFlash against EAGLE-3 on one target: upstream's server plain, with an EAGLE-3 head and with the DFlash drafter, and
ours with the same drafter, chains and trees.

Usage: python benchmarks/eagle3.py [--shapes small 0.6b] [--types q4_0] [--head HEAD.gguf]

train_eagle3.py trains heads for the pocket target; pocket-eagle3.gguf is one, as Q4_0. "small" is the bundled pair
itself (f16); every other shape is the inflated pair with an inflated head. All systems answer each prompt in turns, at
temperature 0. A speed is over all answers of a repeat; tables have the median of the repeats.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.compare_upstream import measure
from benchmarks.comparison import Run, speed
from benchmarks.eagle3_head import inflate_head
from benchmarks.record import requests
from benchmarks.systems import PLAIN, Setting, Systems
from dflash_local.build import peer
from dflash_local.convert.target import Target
from dflash_local.demo.pocket import bundled_pair, shape_of
from dflash_local.demo.shapes import SHAPES, TYPES, Pair

HEAD = Path(__file__).with_name("pocket-eagle3.gguf")
SMALL = "small"
DRAFTS = {"eagle3": (2, 3, 5, 7), "dflash": (3, 7, 15)}
CHAINS, TREES = "dflash-local, chains", "dflash-local, trees"


def system(kind: str, n_max: int) -> str:
    return f"upstream {kind} {n_max}"


def commands(setting: Setting, head: Path) -> dict[str, list[str]]:
    """argv of each system."""
    eagle = Setting(Pair(setting.pair.target, head), setting.bins, threads=setting.threads)
    found = {PLAIN: setting.plain()}
    for kind, own in (("eagle3", eagle), ("dflash", setting)):
        for n_max in DRAFTS[kind]:
            argv = own.upstream(n_max)
            argv[argv.index("--spec-type") + 1] = f"draft-{kind}"
            found[system(kind, n_max)] = argv
    return {**found, CHAINS: setting.ours("--draft", "chain"), TREES: setting.ours()}


def row(name: str, runs: Sequence[Run], plain: Sequence[Run]) -> dict[str, Any]:
    """A line of the table: medians of the repeats, each against plain's in the same repeat."""
    passes, tokens = sum(sum(run.passes) for run in runs), sum(sum(run.tokens) for run in runs)
    ratios = [speed([a]) / speed([b]) for a, b in zip(runs, plain, strict=True)]
    return {
        "system": name,
        "tokens_per_second": round(statistics.median(speed([run]) for run in runs), 2),
        "al": round(tokens / passes, 3),
        "speedup": round(statistics.median(ratios), 3),
        "speedup_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "same_as_plain": sum(a == b for a, b in zip(runs[0].texts, plain[0].texts, strict=True)),
    }


def best(rows: Sequence[dict[str, Any]], prefix: str) -> dict[str, Any]:
    return max((row for row in rows if row["system"].startswith(prefix)), key=lambda row: float(row["speedup"]))


def markdown(cells: Sequence[dict[str, Any]], footer: str) -> str:
    parts = []
    for cell in cells:
        rows = cell["rows"]
        lines = []
        for row in rows:
            over = "{:.2f} ({:.2f}-{:.2f})".format(row["speedup"], *row["speedup_range"])
            al, same = f"{row['al']:.2f}", f"{row['same_as_plain']} of {cell['prompts']}"
            speed = f"{row['tokens_per_second']:.1f}"
            lines.append([row["system"], speed, over, "-" if row["system"] == PLAIN else al, same])
        eagle, *others = (best(rows, prefix) for prefix in ("upstream eagle3", "upstream dflash", CHAINS, TREES))
        ratios = ", ".join(f"{row['system']}: {row['speedup'] / eagle['speedup']:.2f}" for row in others)
        parts += [
            f"### {cell['shape']}, {cell['ftype'].upper()}\n",
            record.table(["system", "tok/s", "over plain", "AL", "same answers as plain"], lines),
            f"\nSpeed-up over that of {eagle['system']}, the fastest of its draft lengths: {ratios}.\n",
        ]
    return "\n".join(parts) + f"\nMedians of the repeats, in brackets the lowest and the highest. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "eagle3", n_predict=100, repeats=3)
    ap.add_argument("--head", type=Path, default=HEAD, metavar="GGUF", help="an EAGLE-3 head of the pocket target")
    ap.add_argument("--shapes", nargs="+", choices=(SMALL, *SHAPES), default=["0.6b"], help="what the pair is made to")
    ap.add_argument("--types", nargs="+", choices=TYPES, default=["q4_0"], help="of inflated pairs and heads")
    record.add_work_option(ap)
    args = ap.parse_args(argv)
    prompts = record.read_prompts(args.prompts, args.limit)
    env = record.environment(ap, args)
    bins, cells = peer.build(), []
    for shape, ftype in [(s, t) for s in args.shapes for t in (["f16"] if s == SMALL else args.types)]:
        with tempfile.TemporaryDirectory(prefix="eagle3-") as scratch:
            pair, head = bundled_pair(), args.head
            if shape != SMALL:
                n_layer = Target.read(pair.target).n_layer
                head = inflate_head(head, n_layer, shape_of(shape, "dflash"), ftype, Path(scratch) / "head.gguf")
                pair = pairs.make(args.work, shape, ftype, "dflash")
            with Systems(commands(Setting(pair, bins, threads=args.threads), head)) as systems:
                systems.warm_up(requests(prompts[:2], args.n_predict, 0.0))
                runs = measure(systems, prompts, 0.0, args.n_predict, args.repeats, f"{shape} {ftype}", may_lose=())
        rows = [row(name, found, runs[PLAIN]) for name, found in runs.items()]
        cells.append({"shape": shape, "ftype": ftype, "prompts": len(prompts), "rows": rows})
        record.save(args.out, {**env, "cells": cells}, markdown(cells, record.footer(env)))
    return record.publish(args.out, {**env, "cells": cells}, markdown(cells, record.footer(env)))


if __name__ == "__main__":
    record.run(main)
