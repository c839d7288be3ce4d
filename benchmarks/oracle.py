"""What better choices could bring: rules for the number of nodes, replayed over the trees of real answers, against who
knows what will be accepted.

Usage: python benchmarks/oracle.py [--temperatures 0 0.8] [--limit N]

The pair and the prompts of real_pair.py, a cell for each kind, with pass times from a table (hindsight.py), so the
figures do not depend on the machine. Each step grows a tree of 64 nodes, and its path shows which of them were worth
their time; a rule sees only their values and the last pass's width, whose change costs time, and takes the first k in
their order. So all rules are asked the same steps, where in an answer of its own each would come to others.

own rate: the k with the most tokens per millisecond in this step, as the controller chooses, but for its choice of
    blocks, its rests and what a step costs beside its passes
long run: the k with the most tokens less those that come in its time elsewhere, at the rate that this rule reaches
oracle: takes the accepted nodes alone
oracle, no vain blocks: also does without the drafter's pass where nothing will be accepted

Log-losses say how well accepted tokens were predicted, given that their parent was accepted: by the drafter, and by
the values, which correct it by what the slot has seen. What larger trees and more candidates would bring follows from
the tokens of a step by the nodes of its tree, and from how often candidates of each rank, of those in the tree, are
accepted.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from benchmarks.answers import answers
from benchmarks.hindsight import TIMES, opened, real_pair_cells
from benchmarks.pass_times import PassTimes
from dflash_local.draft_options import MAX_NODES
from dflash_local.generation import Step
from dflash_local.native import VerifiedTree

SIZES = (1, 4, 8, 16, 32, 64)  # nodes, the anchor counted
ROUNDS = 20  # in which the long run's rate is found: each takes the rate of the one before


@dataclass(frozen=True)
class Grown:
    """A step's tree: the values of its draft nodes in their order, which of them were accepted, and the milliseconds of
    the drafter's pass."""

    values: list[float]
    accepted: list[bool]
    draft_ms: float

    def tokens(self, k: int) -> int:
        """What the step yields with its first k draft nodes."""
        return 1 + sum(self.accepted[:k])

    def milliseconds(self, k: int, width: int, times: PassTimes) -> float:
        """Of the step with its first k draft nodes, after a pass of `width` rows (0: none)."""
        return self.draft_ms + times.verify_ms(self.rows(k), width)

    def rows(self, k: int) -> int:
        return 1 + min(k, len(self.values))


Rule = Callable[[Grown, int], int]  # how many draft nodes, after a pass of so many rows


def grown(steps: Sequence[Step], times: PassTimes) -> Iterator[Grown]:
    """The trees of an answer, without the prompt's pass."""
    for step in steps:
        if (tree := step.tree) and len(tree.tokens) > 1:
            path = set(tree.path)
            nodes, draft_ms = range(1, len(tree.tokens)), times.draft_ms(step.n_denoised)
            yield Grown([tree.values[n] for n in nodes], [n in path for n in nodes], draft_ms)


def rate(trees: Sequence[Grown], rule: Rule, times: PassTimes) -> float:
    """Tokens per second."""
    tokens, ms, width = 0, 0.0, 0
    for tree in trees:
        k = rule(tree, width)
        tokens += tree.tokens(k)
        ms += tree.milliseconds(k, width, times)
        width = tree.rows(k)
    return 1e3 * tokens / ms


def best(tree: Grown, width: int, times: PassTimes, worth: Callable[[float, float], float]) -> int:
    """The k of the highest worth, by the tokens that values promise, and milliseconds."""
    gains = accumulate(tree.values, initial=1.0)
    worths = [worth(gain, tree.milliseconds(k, width, times)) for k, gain in enumerate(gains)]
    return max(range(len(worths)), key=worths.__getitem__)


def fixed(n: int) -> Rule:
    """A tree of n nodes, the anchor counted."""
    return lambda _tree, _width: n - 1


def own_rate(times: PassTimes) -> Rule:
    return lambda tree, width: best(tree, width, times, lambda gain, ms: gain / ms)


def long_run(trees: Sequence[Grown], times: PassTimes) -> Rule:
    """By the rate that it reaches itself over these trees (Dinkelbach, "On nonlinear fractional programming",
    Management Science 1967)."""

    def at_rate(tokens_per_ms: float) -> Rule:
        return lambda tree, width: best(tree, width, times, lambda gain, ms: gain - tokens_per_ms * ms)

    rule = own_rate(times)
    for _ in range(ROUNDS):
        rule = at_rate(rate(trees, rule, times) / 1e3)
    return rule


def oracle(trees: Sequence[Grown], times: PassTimes, *, vain_blocks: bool) -> float:
    """Tokens per second of passes that verify what is accepted, and nothing else."""
    tokens = [tree.tokens(len(tree.values)) for tree in trees]
    ms = sum(
        times.verify_ms(n, width) + (tree.draft_ms if vain_blocks or n > 1 else 0.0)
        for tree, n, width in zip(trees, tokens, [0, *tokens[:-1]], strict=True)
    )
    return 1e3 * sum(tokens) / ms


def by_rank(trees: Sequence[VerifiedTree]) -> list[float]:
    """How often the drafter's first, second, ... candidate in the tree was accepted, where the walk came to their
    parent."""
    seen, accepted = Counter[int](), Counter[int]()
    for tree in trees:
        path = set(tree.path)
        for parent in path:
            mine = [node for node, its in enumerate(tree.parents) if its == parent and tree.probs[node] > 0]
            for rank, node in enumerate(sorted(mine, key=lambda node: -tree.probs[node])):
                seen[rank] += 1
                accepted[rank] += node in path
    return [round(accepted[rank] / seen[rank], 4) for rank in sorted(seen)]


def log_losses(trees: Sequence[VerifiedTree]) -> tuple[float, float]:
    """Of the drafter's probabilities and of the values given the parent's, over the nodes that the drafter proposed and
    the walk has looked at."""
    by_drafter, by_value, n = 0.0, 0.0, 0
    for tree in trees:
        path = set(tree.path)
        for node in range(1, len(tree.tokens)):
            parent = tree.parents[node]
            if parent in path and tree.probs[node] > 0:
                by_drafter += loss(tree.probs[node], node in path)
                by_value += loss(tree.values[node] / (tree.values[parent] if parent else 1.0), node in path)
                n += 1
    return by_drafter / n, by_value / n


def loss(prob: float, happened: bool) -> float:
    """In nats."""
    prob = min(max(prob, 1e-4), 1 - 1e-4)
    return -math.log(prob if happened else 1 - prob)


def compare(steps: Sequence[Sequence[Step]], times: PassTimes, sizes: Sequence[int]) -> dict[str, Any]:
    """Tokens per second of each rule over the steps of all answers, and the log-losses."""
    trees = [tree for answer in steps for tree in grown(answer, times)]
    speeds = {f"tree {n}": rate(trees, fixed(n), times) for n in sizes}
    speeds |= {
        "own rate": rate(trees, own_rate(times), times),
        "long run": rate(trees, long_run(trees, times), times),
        "oracle": oracle(trees, times, vain_blocks=True),
        "oracle, no vain blocks": oracle(trees, times, vain_blocks=False),
    }
    verified = [step.tree for answer in steps for step in answer if step.tree]
    drafter, values = log_losses(verified)
    return {
        "steps": len(trees),
        "tokens": {n: round(sum(tree.tokens(n - 1) for tree in trees) / len(trees), 3) for n in SIZES},
        "by_rank": by_rank(verified),
        "speeds": {name: round(speed, 2) for name, speed in speeds.items()},
        "log_loss": {"drafter": round(drafter, 4), "values": round(values, 4)},
    }


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    """A line per cell, a column per rule."""
    names = list(rows[0]["speeds"])
    sizes = ", ".join(map(str, SIZES))
    head = ["prompts", "temperature", "steps", *names, "log-loss: drafter, values", f"tokens of {sizes} nodes",
            "accepted by rank"]  # fmt: skip
    lines = [
        [row["cell"], f"{row['temperature']:g}", f"{row['steps']}",
         *(f"{row['speeds'][name]:.0f}" for name in names),
         f"{row['log_loss']['drafter']:.3f}, {row['log_loss']['values']:.3f}",
         ", ".join(f"{tokens:.2f}" for tokens in row["tokens"].values()),
         ", ".join(f"{share:.3f}" for share in row["by_rank"])]
        for row in rows
    ]  # fmt: skip
    return f"{record.table(head, lines)}\n\nTokens per second by the table of pass times. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "oracle", n_predict=160, repeats=1, limit=8)
    record.add_temperatures_option(ap, 0.0, 0.8)
    ap.add_argument("--trees", nargs="+", type=int, default=[4, 6, 8, 12, 16], metavar="N", help="fixed sizes")
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    for name, pair, prompts in real_pair_cells(args.limit):
        with opened(pair, args.threads, TIMES) as engine:
            list(answers(engine, prompts[:2], args.n_predict, 0.0))  # it learns, as a server has
            for temperature in args.temperatures:
                done = answers(
                    engine, prompts, args.n_predict, temperature, args.repeats,
                    budget=MAX_NODES, draft="tree", trace=True, return_drafts=True,
                )  # fmt: skip
                row = compare([answer.steps for answer in done], TIMES, args.trees)
                table.add({"cell": name, "temperature": temperature, **row})
    return table.show()


if __name__ == "__main__":
    record.run(main)
