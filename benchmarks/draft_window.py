"""How far back a drafter's blocks look: acceptance lengths in long talks, with rings of several sizes.

Usage: python benchmarks/draft_window.py [--drafters dflash dflash-small] [--rings 256 512 4096] [--turns 16]

A talk is a conversation of drawn prompts; each repeat draws another one. The small pocket pairs (f16), trained with 512
tokens, budget 16, no prompt lookup. A ring of 256 cannot look further; in a larger one it is learned.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from dflash_local.demo.pocket import DRAFTERS, bundled_pair
from dflash_local.engine import Engine

PARTS = 4  # of a talk, each with a column of its own


class Turn(NamedTuple):
    """An answer of a talk."""

    n_text: int  # tokens before it
    n_tokens: int
    n_passes: int


def talk(engine: Engine, prompts: Sequence[dict[str, Any]], n_turns: int, n: int, seed: int) -> list[Turn]:
    """The answers to drawn prompts, each of at most `n` tokens."""
    draw = random.Random(seed)
    messages: list[dict[str, Any]] = []
    turns = []
    for _ in range(n_turns):
        messages.append(draw.choice(prompts)["messages"][-1])
        answer = engine.chat(messages, max_tokens=n, temperature=0, seed=1)
        messages.append({"role": "assistant", "content": answer.text})
        timings = answer.timings
        turns.append(Turn(answer.completion.prompt_tokens, timings.predicted_n, timings.n_passes))
    return turns


def al_of(turns: Sequence[Turn]) -> float:
    """Tokens per pass of some answers."""
    return sum(turn.n_tokens for turn in turns) / max(sum(turn.n_passes for turn in turns), 1)


def parts_of(talks: Sequence[Sequence[Turn]]) -> list[dict[str, float]]:
    """Of each part of the talks: the tokens of text before its last answer, at most, and the acceptance length."""
    n = len(talks[0])
    parts = []
    for begin, end in ((n * i // PARTS, n * (i + 1) // PARTS) for i in range(PARTS)):
        turns = [turn for turns in talks for turn in turns[begin:end]]
        parts.append({"text": max(turn.n_text for turn in turns), "al": al_of(turns)})
    return parts


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    head = ["drafter", "ring", *(f"AL, text up to {part['text']:.0f}" for part in rows[0]["parts"])]
    lines = [
        [row["drafter"], f"{row['ring']}{' (learned)' if row['learned'] else ''}"]
        + [f"{part['al']:.1f}" for part in row["parts"]]
        for row in rows
    ]
    return record.table(head, lines) + f"\n\nText: tokens before an answer. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "draft_window", n_predict=90, repeats=3)
    ap.add_argument("--drafters", nargs="+", choices=DRAFTERS, default=["dflash", "dflash-small"])
    ap.add_argument("--rings", nargs="+", type=int, default=[256, 512, 4096], metavar="N", help="of --draft-ctx")
    ap.add_argument("--turns", type=int, default=16, metavar="N")
    args = ap.parse_args(argv)
    if args.turns < PARTS:
        ap.error(f"--turns must be at least {PARTS}")
    table = record.Table(ap, args, markdown)
    prompts = record.read_prompts(args.prompts, args.limit)
    for drafter in args.drafters:
        pair = bundled_pair(drafter)
        for ring in args.rings:
            with Engine(
                pair.target, pair.drafter, n_ctx=4096, n_threads=args.threads, draft_ctx=ring, budget=16, lookup=False
            ) as engine:
                talks = [talk(engine, prompts, args.turns, args.n_predict, i) for i in range(args.repeats)]
                learned = bool(set(engine.stats()["choices"]["windows"]) - {"0"})
            row = {"drafter": drafter, "ring": ring, "learned": learned, "parts": parts_of(talks)}
            record.say(f"{drafter}, {ring}: " + ", ".join(f"{part['al']:.1f}" for part in row["parts"]))
            table.add(row)
    return table.show()


if __name__ == "__main__":
    record.run(main)
