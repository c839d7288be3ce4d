"""Which accept rule accepts more: sample-and-match, or block verification of chains from a DFlash 2 lattice.

Usage: python benchmarks/accept.py [--temperatures 0.6 1.0] [--repeats 20]

The two rules give different texts, so each mean is over its own answers, with many seeds per prompt and a standard
error. The small pocket pair (f16), whole blocks, no prompt lookup.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from benchmarks.answers import acceptance_length, answers
from dflash_local.demo.pocket import bundled_pair
from dflash_local.engine import Completion, Engine

RULES = ("match", "block")
BLOCK = 16


def standard_error(done: Sequence[Completion]) -> float:
    """The standard error of the acceptance length over all answers: a ratio of sums, linearized, for independent
    answers."""
    al = acceptance_length(done)
    residuals = [answer.timings.n_steps - al * answer.timings.n_passes for answer in done]
    return math.sqrt(len(done)) * statistics.pstdev(residuals) / sum(answer.timings.n_passes for answer in done)


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    head = ["temperature", *(f"AL, {rule}" for rule in RULES), "block over match"]
    lines = []
    for row in rows:
        als = [f"{row[rule]['al']:.3f} ± {row[rule]['error']:.3f}" for rule in RULES]
        lines.append([f"{row['temperature']:g}", *als, f"{row['ratio']:.3f} ± {row['ratio_error']:.3f}"])
    return record.table(head, lines) + f"\n\nMeans and standard errors. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "accept", n_predict=120, repeats=20)
    record.add_temperatures_option(ap, 0.6, 1.0)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    prompts = record.read_prompts(args.prompts, args.limit)
    pair = bundled_pair("dflash2")
    drafts: dict[str, Any] = {"draft": "chain", "budget": BLOCK, "lookup": False}
    with Engine(pair.target, pair.drafter, n_ctx=1024, n_threads=args.threads, warmup=False, **drafts) as engine:
        for temperature in args.temperatures:
            row: dict[str, Any] = {"temperature": temperature}
            for rule in RULES:
                completions = list(answers(engine, prompts, args.n_predict, temperature, args.repeats, accept=rule))
                al, error = acceptance_length(completions), standard_error(completions)
                row[rule] = {"al": al, "error": error, "answers": len(completions)}
            row["ratio"] = row["block"]["al"] / row["match"]["al"]
            row["ratio_error"] = row["ratio"] * math.hypot(*(row[rule]["error"] / row[rule]["al"] for rule in RULES))
            record.say(f"T{temperature:g}: block over match {row['ratio']:.3f}")
            table.add(row)
    return table.show()


if __name__ == "__main__":
    record.run(main)
