"""Acceptance length of trees and of chains from the same drafts, against the node budget.

Usage: python benchmarks/trees.py [--drafters dflash ...] [--budgets 1 2 4 8 16 32 64] [--temperatures 0 1]

On the small pocket pairs (f16), since acceptance does not depend on the size of the model.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from benchmarks.answers import acceptance_length, answers
from dflash_local.demo.pocket import DRAFTERS, PAIRS, bundled_pair
from dflash_local.engine import Engine

SHAPES = ("chain", "tree")


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    """A line per drafter, temperature and shape, a column per budget."""
    budgets = sorted({row["budget"] for row in rows})
    lines = []
    for drafter, temperature in dict.fromkeys((row["drafter"], row["temperature"]) for row in rows):
        mine = [row for row in rows if (row["drafter"], row["temperature"]) == (drafter, temperature)]
        by_budget = {row["budget"]: {**row, "ratio": row["tree"] / row["chain"]} for row in mine}
        for name in (*SHAPES, "ratio"):
            values = (f"{by_budget[budget][name]:.2f}" if budget in by_budget else "" for budget in budgets)
            lines.append([drafter, f"{temperature:g}", name, *values])
    return record.table(["drafter", "temperature", "AL by nodes", *map(str, budgets)], lines) + f"\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "trees", n_predict=120, repeats=4)
    ap.add_argument("--drafters", nargs="+", choices=PAIRS, default=list(DRAFTERS), help="bundled pairs, by drafter")
    ap.add_argument(
        "--budgets", nargs="+", type=int, default=[1, 4, 8, 16, 32, 64], metavar="N", help="nodes, the anchor counted"
    )
    record.add_temperatures_option(ap, 0.0, 1.0)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    prompts = record.read_prompts(args.prompts, args.limit)
    for drafter in args.drafters:
        pair = bundled_pair(drafter)
        with Engine(
            pair.target, pair.drafter, n_ctx=1024, n_threads=args.threads, lookup=False, warmup=False
        ) as engine:
            for temperature in args.temperatures:
                for budget in args.budgets:
                    row: dict[str, Any] = {"drafter": drafter, "temperature": temperature, "budget": budget}
                    for shape in SHAPES:
                        how = {"budget": budget, "draft": shape}
                        done = list(answers(engine, prompts, args.n_predict, temperature, args.repeats, **how))
                        row[shape] = round(acceptance_length(done), 4)
                    where = f"{drafter} T{temperature:g}, {budget} nodes"
                    record.say(f"{where}: tree {row['tree']:.2f}, chain {row['chain']:.2f}")
                    table.add(row)
    return table.show()


if __name__ == "__main__":
    record.run(main)
