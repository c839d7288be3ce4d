"""Throughput against the number of concurrent clients: plain, upstream's draft lengths and ours, through HTTP, in
turns.

Usage: python benchmarks/concurrency.py [--clients 1 2 4 8 16] [--drafter dflash] [--type q4_0] [--temperature 0]

docs/benchmarks.md says what a turn is and what counts.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.http_load import LoadResult
from benchmarks.record import requests, say
from benchmarks.systems import OURS, PLAIN, UPSTREAM, Setting, Systems, order
from dflash_local.build import peer

PROMPTS_PER_CLIENT = 3

Speeds = dict[str, list[float]]  # tokens per second by system, one number per repeat


def throughput(load: LoadResult) -> float:
    """Tokens per second of all clients together."""
    return sum(answer.n_tokens for answer in load.answers) / load.wall


def enough(prompts: Sequence[dict[str, Any]], clients: int) -> list[dict[str, Any]]:
    """The prompts, repeated until each client has PROMPTS_PER_CLIENT."""
    return list(itertools.islice(itertools.cycle(prompts), max(len(prompts), PROMPTS_PER_CLIENT * clients)))


def measure(systems: Systems, prompts: Sequence[dict[str, Any]], temperature: float, n: int, repeats: int) -> Speeds:
    """Each system answers the prompts once per repeat."""
    speeds: Speeds = {name: [] for name in systems.names}
    for repeat in range(repeats):
        bodies = requests(prompts, n, temperature, repeat)
        for name in order(systems.names, repeat):
            speeds[name].append(round(throughput(systems.turn(name, bodies)), 2))
        where = f"{systems.clients} clients, {repeat + 1}/{repeats}"
        say(f"{where}: " + ", ".join(f"{name} {done[-1]:.1f}" for name, done in speeds.items()) + " tok/s")
    return speeds


def row(clients: int, speeds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """One line of the table: medians, upstream's best and the ratios to it and to plain."""
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    best = max((name for name in UPSTREAM if name in speeds), key=lambda name: medians[name])

    def over(base: str) -> float:
        return round(statistics.median(record.ratios(speeds[base], speeds[OURS])), 4)

    return {
        "clients": clients,
        "best_upstream": best,
        "over_best": over(best),
        "over_plain": over(PLAIN),
        "tokens_per_second": medians,
        "repeats": dict(speeds),
    }


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    names = list(rows[0]["tokens_per_second"])
    head = ["clients", *(f"{name}, tok/s" for name in names), "over upstream's best", "over plain"]
    lines = []
    for r in rows:
        speeds = {name: f"{value:.1f}" for name, value in r["tokens_per_second"].items()}
        for name in (r["best_upstream"], OURS):
            speeds[name] = f"**{speeds[name]}**"
        lines.append([str(r["clients"]), *speeds.values(), f"{r['over_best']:.2f}", f"{r['over_plain']:.2f}"])
    note = "Tokens per second of all clients together, prompts and HTTP included."
    return f"{record.table(head, lines)}\n\n{note} {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "concurrency", n_predict=100, repeats=3)
    record.add_pair_options(ap)
    clients = [1, 2, 4, 8, 16]
    ap.add_argument("--clients", nargs="+", type=int, default=clients, metavar="N", help="at once, a slot for each")
    record.add_pair_choice(ap)
    ap.add_argument("--temperature", type=float, default=0.0, metavar="T")
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    prompts = record.read_prompts(args.prompts, args.limit)
    bins = peer.build()
    pair = pairs.make(args.work, args.shape, args.type, args.drafter)
    for clients in args.clients:
        setting = Setting(pair, bins, clients, args.threads)
        load_prompts = enough(prompts, clients)
        with Systems(setting.commands(), clients) as systems:
            systems.warm_up(requests(load_prompts[: 2 * clients], args.n_predict, args.temperature))
            table.add(row(clients, measure(systems, load_prompts, args.temperature, args.n_predict, args.repeats)))
    return table.show()


if __name__ == "__main__":
    record.run(main)
