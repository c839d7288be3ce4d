"""Acceptance length of trees and of chains from the same drafts, against the node budget.

Usage: python benchmarks/trees.py [--drafters dflash ...] [--budgets 1 2 4 8 16 32 64] [--temperatures 0 1]

Acceptance does not depend on the size of the model, so this runs on the small pocket pairs (f16). The drafter denoises
the same block for both; a chain can use at most the block's length of a budget. Texts are the same for all budgets:
sample-and-match, a seed per prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# So that a script can import the package `benchmarks`.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import record
from benchmarks.answers import acceptance_length, answers
from benchmarks.record import say
from dflash_local.demo.pocket import DRAFTERS, PAIRS, bundled_pair
from dflash_local.engine import Engine

SHAPES = ("chain", "tree")


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    """A line per drafter, temperature and shape, a column per budget."""
    budgets = sorted({row["budget"] for row in rows})
    lines = []
    for drafter, temperature in dict.fromkeys((row["drafter"], row["temperature"]) for row in rows):
        by_budget = {
            row["budget"]: row for row in rows if (row["drafter"], row["temperature"]) == (drafter, temperature)
        }
        for shape in SHAPES:
            lines.append(
                [
                    drafter,
                    f"{temperature:g}",
                    shape,
                    *(f"{by_budget[b][shape]:.2f}" if b in by_budget else "" for b in budgets),
                ]
            )
        lines.append(
            [
                drafter,
                f"{temperature:g}",
                "ratio",
                *(f"{by_budget[b]['tree'] / by_budget[b]['chain']:.2f}" if b in by_budget else "" for b in budgets),
            ]
        )
    return record.table(["drafter", "temperature", "AL by nodes", *map(str, budgets)], lines) + f"\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "trees", n_predict=120, repeats=4)
    ap.add_argument("--drafters", nargs="+", choices=PAIRS, default=list(DRAFTERS), help="bundled pairs, by drafter")
    ap.add_argument(
        "--budgets", nargs="+", type=int, default=[1, 4, 8, 16, 32, 64], metavar="N", help="nodes, the anchor counted"
    )
    ap.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0], metavar="T")
    args = ap.parse_args(argv)
    env = record.environment(ap, args)
    prompts = record.read_prompts(args.prompts, args.limit)
    rows: list[dict[str, Any]] = []
    for drafter in args.drafters:
        pair = bundled_pair(drafter)
        with Engine(
            pair.target, pair.drafter, n_ctx=1024, n_threads=args.threads, lookup=False, warmup=False
        ) as engine:
            for temperature in args.temperatures:
                for budget in args.budgets:
                    al = {
                        shape: acceptance_length(
                            list(
                                answers(
                                    engine,
                                    prompts,
                                    args.n_predict,
                                    temperature,
                                    args.repeats,
                                    budget=budget,
                                    draft=shape,
                                )
                            )
                        )
                        for shape in SHAPES
                    }
                    say(
                        f"{drafter} T{temperature:g}, {budget} nodes: "
                        + ", ".join(f"{shape} {al[shape]:.2f}" for shape in SHAPES)
                    )
                    rows.append(
                        {
                            "drafter": drafter,
                            "temperature": temperature,
                            "budget": budget,
                            **{s: round(al[s], 4) for s in SHAPES},
                        }
                    )
                    record.save(args.out, {**env, "rows": rows}, markdown(rows, record.footer(env)))
    print(markdown(rows, record.footer(env)))
    return 0


if __name__ == "__main__":
    record.run(main)
