"""Throughput by the number of replicas on Ray Serve: `dflash-local serve --replicas N` through HTTP, and without Ray.

Usage: python benchmarks/replicas.py [--replicas 0 1 2] [--clients 4] [--shape 0.6b] [-t 1] [-n 64]

0 is a server without Ray; the difference to 1 is the gateway's cost. Each replica has a slot per client and `-t`
threads, and needs its own cores for a gain.
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
from benchmarks.concurrency import enough, throughput
from benchmarks.http_load import Server, run_load
from benchmarks.record import requests, say
from benchmarks.systems import our_server
from dflash_local.demo.shapes import SHAPES, Pair


def measure(pair: Pair, args: Any, n_replicas: int, log: Path) -> list[float]:
    """Tokens per second of each repeat, after a warm-up turn."""
    flags = ["-m", pair.target, "-md", pair.drafter, "-c", 2048 * args.clients, "-np", args.clients]
    flags += ["-t", args.threads, "--no-cost-cache", "--replicas", n_replicas, "--replica-requests", 2 * args.clients]
    command = our_server([*map(str, flags)])
    load = enough(record.read_prompts(args.prompts, args.limit), args.clients)
    speeds = []
    with Server(f"{n_replicas} replicas", command, log) as server:
        for repeat in range(args.repeats + 1):
            bodies = requests(load, args.n_predict, 0.0, repeat)
            speeds.append(round(throughput(run_load(server.port, bodies, args.clients)), 1))
            say(f"{n_replicas} replicas, {repeat}/{args.repeats}: {speeds[-1]:.1f} tok/s")
    return speeds[1:]


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    first = rows[0]["tokens_per_second"]
    lines = []
    for row in rows:
        speed = row["tokens_per_second"]
        lines.append([str(row["replicas"] or "no Ray"), f"{speed:.1f}", f"{speed / first:.2f}"])
    table = record.table(["replicas", "tok/s", "over the first row"], lines)
    return f"{table}\n\nTokens per second of all clients together, prompts and HTTP included. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "replicas", n_predict=64, repeats=3)
    ap.add_argument("--replicas", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="numbers of replicas")
    ap.add_argument("--clients", type=int, default=4, metavar="N", help="concurrent clients")
    record.add_pair_choice(ap)
    ap.add_argument("--shape", choices=SHAPES, help="what the pair is inflated to (default: as bundled)")
    record.add_work_option(ap)
    args = ap.parse_args(argv)
    pair = pairs.make(args.work, args.shape, args.type, args.drafter)
    table = record.Table(ap, args, markdown)
    for n_replicas in args.replicas:
        with tempfile.TemporaryDirectory(prefix="replicas-") as logs:
            speeds = measure(pair, args, n_replicas, Path(logs) / "log")
        table.add({"replicas": n_replicas, "tokens_per_second": statistics.median(speeds), "repeats": speeds})
    return table.show()


if __name__ == "__main__":
    record.run(main)
