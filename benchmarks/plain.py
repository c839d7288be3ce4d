"""Plain decoding, a pass of one row for each token: ours against upstream's and other servers', on real models and on
targets of inflated pairs.

Usage: python benchmarks/plain.py [--models smollm2 ...] [--targets 0.6b/q4_0 ...] [--peer-bin ik=PATH]

All servers are resident, nothing is drafted, and they take turns at every prompt. --peer-bin adds a server with the
flags of ik_llama.cpp's, at its own defaults and with the weights packed at load (-rtr). A token reads all weights once,
so no server is faster than the memory, whose rate is measured before and after each repeat.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record, targets
from benchmarks.ceilings import MEMORY, Meter
from benchmarks.memory_rate import bytes_per_token
from benchmarks.systems import NO_DRAFTS, OURS, PLAIN, Systems, common_flags, our_server, upstream_server
from dflash_local.build import peer

PEER: dict[str, list[str]] = {"": [], "-rtr": ["-rtr"]}  # settings of ik_llama.cpp's server
N_CTX = 2048
LIMIT = 1.1  # over the best setting of each other project


def target(text: str) -> tuple[str, str]:
    """SHAPE/TYPE of an inflated target."""
    shape, slash, ftype = text.partition("/")
    if not slash or shape not in targets.SHAPES or ftype not in targets.TYPES:
        raise argparse.ArgumentTypeError(f"must be SHAPE/TYPE, such as 0.6b/q4_0, got {text!r}")
    return shape, ftype


def commands(model: Path, bins: Path, threads: int, peers: Mapping[str, Path]) -> dict[str, list[str]]:
    """argv of every system. `peers`: servers of other projects by name."""
    common = common_flags(model, N_CTX, threads)
    return {
        PLAIN: upstream_server(bins, common),
        **real_models.peer_servers(peers, common, PEER),
        OURS: our_server(common, "--no-cost-cache", *NO_DRAFTS),
    }


def measure(
    systems: Systems, bodies: Sequence[dict[str, Any]], repeats: int, read_rate: Callable[[], float]
) -> tuple[dict[str, list[float]], list[float]]:
    """Tokens per second of each system, one value per repeat, and the memory's GB/s beside them."""
    speeds: dict[str, list[float]] = {name: [] for name in systems.names}
    rates = [read_rate()]
    for repeat in range(repeats):
        found = systems.speeds(bodies, ["plain"] * len(bodies), repeat * len(bodies))
        for name, speed in found["plain"].items():
            speeds[name].append(speed)
        rates.append(read_rate())
    return speeds, rates


def row(title: str, speeds: Mapping[str, Sequence[float]], n_bytes: int, rates: Sequence[float]) -> dict[str, Any]:
    """One model's line: medians, and ours over each. A token reads `n_bytes`."""
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    ratios = {name: medians[OURS] / speed for name, speed in medians.items() if name != OURS}
    return {
        "model": title, "speeds": medians, "all": speeds, "ratios": ratios, "held": min(ratios.values()) >= LIMIT,
        "reads_gb_per_s": n_bytes * medians[OURS] / 1e9, "memory_gb_per_s": rates,
    }  # fmt: skip


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    names = [name for name in rows[0]["speeds"] if name != OURS]
    head = ["model", *names, "ours", *(f"over {name}" for name in names), f"at least {LIMIT}", "ours reads, GB/s",
            "memory, GB/s"]  # fmt: skip
    lines = [
        [
            r["model"], *(f"{r['speeds'][name]:.1f}" for name in (*names, OURS)),
            *(f"{r['ratios'][name]:.2f}" for name in names), record.verdict(r["held"]),
            f"{r['reads_gb_per_s']:.0f}",
            "{:.0f} ({:.0f}-{:.0f})".format(*(of(r["memory_gb_per_s"]) for of in (statistics.median, min, max))),
        ]
        for r in rows
    ]  # fmt: skip
    return f"{record.table(head, lines)}\n\nTokens per second. {footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "plain", n_predict=128, repeats=3, limit=6)
    real_models.add_models_option(ap)
    ap.add_argument("--targets", nargs="*", type=target, default=[], metavar="SHAPE/TYPE", help="inflated targets")
    record.add_work_option(ap)
    real_models.add_peers_option(ap)
    args = ap.parse_args(argv)
    peers = real_models.take_peers(args)
    inflated, args.targets = args.targets, ["/".join(pair) for pair in args.targets]
    table = record.Table(ap, args, markdown)
    bodies = record.requests(record.read_prompts(args.prompts, args.limit), args.n_predict, 0.0, ignore_eos=True)
    bins = peer.build()
    files = {real_models.MODELS[name].title: partial(real_models.fetch, name) for name in args.models}
    files |= {f"{shape} {ftype}": partial(targets.make, args.work, shape, ftype) for shape, ftype in inflated}
    with TemporaryDirectory() as folder:
        meter = Meter(Path(folder))
        for title, file in files.items():
            with Systems(commands(path := file(), bins, args.threads, peers)) as systems:
                systems.warm_up(bodies[:1])
                speeds, rates = measure(systems, bodies, args.repeats, lambda: meter.measure(args.threads).read[MEMORY])
            table.add(row(title, speeds, bytes_per_token(path), rates))
            record.say(str(table.rows[-1]["speeds"]))
    return table.show()


if __name__ == "__main__":
    record.run(main)
