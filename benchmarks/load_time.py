"""Time from the start of a server's process to its first answer, ours against upstream's, on real models.

Usage: python benchmarks/load_time.py [--models smollm2 qwen2.5-coder] [--command VENV/bin/dflash-local]

Each start is a new process that answers one chat request of one token; the file is in the page cache. Upstream's server
is unpatched, with the same flags. Ours warm finds in its cache what passes cost; ours first measures that, as the first
start with a model does. Systems take turns. CPU seconds are the whole process's, until the answer. In a checkout Python
finds our modules by a search of its own for editable installations, which takes longer than for an installed wheel:
--command names the command of one.

A virtual machine gives free memory back to its host, and waits for it when it is used again: seconds for a gigabyte,
which no machine of one's own has. So before each start as much memory as both could need is used and freed.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.http_load import PAGE, Server, run_load
from benchmarks.systems import NO_DRAFTER, common_flags, order, our_server, upstream_server
from dflash_local.build import peer

UPSTREAM, WARM, FIRST = "upstream", "ours, warm", "ours, first"
N_CTX = 4096
LIMIT = 1.2  # times upstream's
BESIDE = 512 << 20  # bytes that a server needs beside the weights, at most


class Start(NamedTuple):
    """Seconds until the server was ready and until its first answer was read; CPU seconds of its process."""

    ready: float
    answered: float
    cpu: float


def commands(target: Path, bins: Path, threads: int, command: str | None = None) -> dict[str, list[str]]:
    """argv of every system; `command`: of another installation of ours."""
    common = common_flags(target, N_CTX, threads)
    warm = our_server(common, *NO_DRAFTER)
    if command is not None:
        warm = [command, *warm[warm.index("serve") :]]
    return {UPSTREAM: upstream_server(bins, common), WARM: warm, FIRST: [*warm, "--no-cost-cache"]}


def touch(n_bytes: int) -> None:
    """Use memory once, and free it."""
    np.empty(n_bytes, np.uint8)[::PAGE] = 1


def start(name: str, argv: Sequence[str], bodies: Sequence[dict[str, Any]], logs: Path) -> Start:
    """Start a server, send it the requests, and end it."""
    begun = time.monotonic()
    with Server(name, argv, logs / "server.log") as server:
        ready = time.monotonic() - begun
        run_load(server.port, bodies, 1)
        return Start(ready, time.monotonic() - begun, server.cpu_seconds())


def measure(
    systems: Mapping[str, Sequence[str]], bodies: Sequence[dict[str, Any]], logs: Path, repeats: int, n_bytes: int = 0
) -> dict[str, list[Start]]:
    """All systems in turns, after one start of each that is not counted: it fills the page cache and ours. Before each,
    `n_bytes` are touched."""
    starts: dict[str, list[Start]] = {name: [] for name in systems}
    for repeat in range(repeats + 1):
        for name in order(list(systems), repeat):
            touch(n_bytes)
            found = start(name, systems[name], bodies, logs)
            if repeat:
                starts[name].append(found)
    return starts


def row(title: str, starts: Mapping[str, Sequence[Start]]) -> dict[str, Any]:
    """One model's line: medians, and ours over upstream's."""
    medians = {name: [statistics.median(values) for values in zip(*of, strict=True)] for name, of in starts.items()}
    answered = {name: Start(*values).answered for name, values in medians.items()}
    return {
        "model": title,
        "seconds": {name: [round(value, 3) for value in values] for name, values in medians.items()},
        "all": {name: [[round(value, 3) for value in one] for one in of] for name, of in starts.items()},
        "warm_over_upstream": round(answered[WARM] / answered[UPSTREAM], 3),
        "first_over_upstream": round(answered[FIRST] / answered[UPSTREAM], 3),
    }


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    head = ["model", "server", "ready, s", "first answer, s", "CPU, s", "over upstream", f"at most {LIMIT}"]
    lines = []
    for r in rows:
        ratios = {WARM: r["warm_over_upstream"], FIRST: r["first_over_upstream"]}
        for name, values in r["seconds"].items():
            ratio = ratios.get(name)
            verdict = ["", ""] if ratio is None else [f"{ratio:.2f}", record.verdict(ratio <= LIMIT)]
            lines.append(
                [r["model"] if name == UPSTREAM else "", name, *(f"{value:.2f}" for value in values), *verdict]
            )
    return f"{record.table(head, lines)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "load_time", n_predict=1, repeats=7, limit=1)
    real_models.add_models_option(ap)
    ap.add_argument("--command", metavar="PATH", help="the dflash-local to start: of a wheel, not of this checkout")
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    # An installed package's modules are compiled; so are ours after the start that is not counted.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    bodies = record.requests(record.read_prompts(args.prompts, args.limit), args.n_predict, 0.0)
    bins = peer.build()
    for name in args.models:
        path = real_models.fetch(name)
        systems = commands(path, bins, args.threads, args.command)
        with tempfile.TemporaryDirectory(prefix="load-time-") as logs:
            starts = measure(systems, bodies, Path(logs), args.repeats, 2 * path.stat().st_size + BESIDE)
        table.add(row(real_models.MODELS[name].title, starts))
        record.say(str({key: value for key, value in table.rows[-1].items() if key != "all"}))
    return table.show()


if __name__ == "__main__":
    record.run(main)
