"""The cost of live drafts: streams with `return_drafts` against the same streams without it.

Usage: python benchmarks/live_drafts.py [--shapes 0.6b 0.1b] [--drafter dflash] [--type q4_0]

One server, one client; each prompt is answered both ways, in alternating order, with the same text. A speed is tokens
after the first per second, by the client's clock, from the first text to the end.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.http_load import Answer, LoadError
from benchmarks.record import say
from benchmarks.systems import OURS, Setting, Systems, acceptance_length, order
from dflash_local.demo.shapes import SHAPES

KINDS = (False, True)  # return_drafts
LIMIT = 0.98


def measure(systems: Systems, bodies: Sequence[dict[str, Any]], repeats: int) -> list[dict[bool, list[Answer]]]:
    """The answers of each repeat, without and with drafts."""
    found: list[dict[bool, list[Answer]]] = []
    for repeat in range(repeats):
        answers: dict[bool, list[Answer]] = {kind: [] for kind in KINDS}
        for i, body in enumerate(bodies):
            for kind in order(KINDS, repeat + i):
                more = {"return_drafts": True} if kind else {}
                answers[kind] += systems.turn(OURS, [{**body, **more}]).answers
        if [one.text for one in answers[True]] != [one.text for one in answers[False]]:
            raise LoadError("the texts differ")
        found.append(answers)
        say(f"{repeat + 1}/{repeats}: {speed(answers[False]):.1f} tok/s, with drafts {speed(answers[True]):.1f}")
    return found


def speed(answers: Sequence[Answer]) -> float:
    """Tokens after the first per second of the client."""
    return sum(one.n_tokens - 1 for one in answers) / sum(one.latency - one.ttft for one in answers)


def row_of(shape: str, found: Sequence[dict[bool, list[Answer]]]) -> dict[str, Any]:
    quiet, drafts = ([speed(answers[kind]) for answers in found] for kind in KINDS)
    done = found[-1][True]
    return {
        "shape": shape,
        "quiet": statistics.median(quiet),
        "told": statistics.median(drafts),
        **record.ratio_row(quiet, drafts, LIMIT),
        "al": acceptance_length(done),
    }


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    head = ["target", "without, tok/s", "with return_drafts, tok/s", "ratio", "AL", "limit", ""]
    lines = []
    for row in rows:
        ratio, *held = record.ratio_cells(row, LIMIT)
        lines.append([row["shape"], f"{row['quiet']:.1f}", f"{row['told']:.1f}", ratio, f"{row['al']:.1f}", *held])
    return f"{record.table(head, lines)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "live_drafts", n_predict=200, repeats=5)
    ap.add_argument("--shapes", nargs="+", choices=SHAPES, default=["0.6b", "0.1b"], help="of the inflated pairs")
    record.add_work_option(ap)
    record.add_pair_choice(ap)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    bodies = record.requests(record.read_prompts(args.prompts, args.limit), args.n_predict, 0.0, stream=True)
    for shape in args.shapes:
        pair = pairs.make(args.work, shape, args.type, args.drafter)
        commands = {OURS: Setting(pair, Path(), threads=args.threads).ours()}
        with Systems(commands) as systems:
            systems.warm_up(bodies[:1])
            table.add(row_of(shape, measure(systems, bodies, args.repeats)))
    return table.show()


if __name__ == "__main__":
    record.run(main)
