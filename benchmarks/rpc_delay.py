"""Drafts over a network: plain and drafted decoding of a target that is split over two RPC servers, with delays.

Usage: python benchmarks/rpc_delay.py [--delays 0 1 10] [--drafter dflash] [--type q4_0] [--shape pocket] [--namespace]

Two servers on loopback, or in their own network namespace, hold half of the layers each. A proxy before each server
(rpc_proxy.py), also at 0 ms, delays all bytes by the given milliseconds each way and counts messages and bytes. Plain
is the same engine on the same servers without a drafter. Only the passes after the prompt's count. The slope of a
pass's time over the delay, in round trips, estimates the number of sequential waits; two at once are one wait.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.answers import acceptance_length, answers
from benchmarks.network import Loopback, Namespace
from benchmarks.record import say
from benchmarks.rpc_proxy import RPCProxy
from dflash_local.baseline import free_port
from dflash_local.demo.shapes import SHAPES, Pair
from dflash_local.engine import Engine

N_SERVERS = 2
POCKET = "pocket"  # the bundled pairs as they are
SYSTEMS = ("plain", "drafted")
START_SECONDS = 30


def _listens(port: int) -> bool:
    """Is the port in use? Found by binding, since a connection would be the only one that the server accepts."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


@contextmanager
def rpc_server(threads: int, network: Loopback) -> Iterator[int]:
    """Run `dflash-local rpc-server` on loopback of a network; yields its port."""
    port = network.inside(free_port)
    program = [*network.prefix, sys.executable, "-m", "dflash_local.cli", "rpc-server"]
    command = [*program, "-p", str(port), "-t", str(threads)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not network.inside(lambda: _listens(port)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no RPC server came up on port {port}")
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def measure(
    engine: Engine, proxies: Sequence[RPCProxy], prompts: Sequence[dict[str, Any]], n: int, name: str
) -> dict[str, Any]:
    """One system at one delay: its speed, and the traffic of its passes."""
    for proxy in proxies:
        proxy.traffic.clear()
    done = list(answers(engine, prompts, n, 0.0, draft="off" if name == "plain" else "tree"))
    passes = sum(answer.timings.n_passes for answer in done)
    ms = sum(answer.timings.predicted_ms for answer in done)
    traffic = [proxy.traffic for proxy in proxies]
    # the counts of messages include the prompts' passes, one per answer
    counted = passes + len(done)
    return {
        "tokens_per_second": round(1e3 * sum(answer.timings.n_steps for answer in done) / ms, 2),
        "ms_per_pass": round(ms / passes, 3),
        "al": round(acceptance_length(done), 3),
        "passes": passes,
        "round_trips_per_pass": [round(one.round_trips / counted, 2) for one in traffic],
        "sent_per_pass": [round(one.sent / counted) for one in traffic],
        "received_per_pass": [round(one.received / counted) for one in traffic],
        "commands_per_pass": [
            {command: round(count / counted, 2) for command, count in sorted(one.commands.items())} for one in traffic
        ],
        "texts": [answer.text for answer in done],
    }


def run(
    pair: Pair, delays: Sequence[float], prompts: Sequence[dict[str, Any]], n: int, threads: int, network: Loopback
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name in SYSTEMS:
        with ExitStack() as stack:
            ports = [stack.enter_context(rpc_server(1, network)) for _ in range(N_SERVERS)]
            proxies = [stack.enter_context(RPCProxy(port, network=network)) for port in ports]
            options: dict[str, Any] = {
                "rpc": ",".join(proxy.address for proxy in proxies), "tensor_split": "1,1",
                "n_ctx": 2048, "n_slots": 1, "n_threads": threads, "cost_cache": False, "cache_ram": 0,
            }  # fmt: skip
            for delay in delays:
                for proxy in proxies:
                    proxy.delay = delay / 1e3  # also while loading, when passes are timed
                with Engine(pair.target, pair.drafter if name == "drafted" else None, **options) as engine:
                    measure(engine, proxies, prompts[:1], n, name)  # warm-up, which also updates the costs of passes
                    row = measure(engine, proxies, prompts, n, name)
                rows.setdefault(f"{delay:g}", {})[name] = row
                say(f"{name}, {delay:g} ms: {row['tokens_per_second']} tok/s, {row['ms_per_pass']} ms a pass")
    for row in rows.values():
        row["ratio"] = round(row["drafted"]["tokens_per_second"] / row["plain"]["tokens_per_second"], 3)
        row["same_text"] = row["plain"].pop("texts") == row["drafted"].pop("texts")
    return rows


def waits(rows: dict[str, Any], name: str) -> float | None:
    """Sequential round trips per pass, from the first and the last delay. None if there is only one delay."""
    delays = sorted(float(delay) for delay in rows)
    if len(delays) < 2:
        return None
    low, high = (rows[f"{delay:g}"][name]["ms_per_pass"] for delay in (delays[0], delays[-1]))
    return round((high - low) / (2 * (delays[-1] - delays[0])), 2)


def markdown(rows: dict[str, Any], footer: str) -> str:
    lines = []
    for delay, row in rows.items():
        plain, drafted = (row[name] for name in SYSTEMS)
        speeds, passes = (
            [f"{one[name]:.1f}" for one in (plain, drafted)] for name in ("tokens_per_second", "ms_per_pass")
        )
        same = "yes" if row["same_text"] else "NO"
        lines.append([f"{delay} ms", *speeds, f"**{row['ratio']:.2f}**", f"{drafted['al']:.2f}", *passes, same])
    last = list(rows.values())[-1]
    moved, counted, waited = [], [], []
    for name in SYSTEMS:
        sent, received = (sum(last[name][f"{way}_per_pass"]) for way in ("sent", "received"))
        moved.append(f"{name} {sent:,} sent and {received:,} received")
        counted.append(f"{name} " + " and ".join(f"{one:.1f}" for one in last[name]["round_trips_per_pass"]))
        waited.append(f"{name} {waits(rows, name)}")
    head = [
        "delay each way", "plain, tok/s", "drafted, tok/s", "ratio", "AL", "plain pass, ms", "drafted pass, ms",
        "same text",
    ]  # fmt: skip
    return (
        record.table(head, lines)
        + f"\n\nRound trips of a pass, by server, counted: {'; '.join(counted)}; the slope of its time, in round "
        + f"trips: {'; '.join(waited)}. Bytes of a pass, both servers: {'; '.join(moved)}. {footer}\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "rpc_delay", n_predict=100, repeats=1, limit=6, threads=1)
    ap.add_argument("--shape", choices=(POCKET, *SHAPES), default=POCKET, help="of the pair: bundled, or inflated to")
    record.add_work_option(ap)
    record.add_pair_choice(ap)
    ap.add_argument(
        "--delays", nargs="+", type=float, default=[0.0, 1.0, 10.0], metavar="MS", help="milliseconds each way"
    )
    ap.add_argument("--namespace", action="store_true", help="servers in a network namespace (needs root)")
    args = ap.parse_args(argv)
    env = record.environment(ap, args)
    env["load"] = os.getloadavg()[0]
    prompts = record.read_prompts(args.prompts, args.limit)
    pair = pairs.make(args.work, None if args.shape == POCKET else args.shape, args.type, args.drafter)
    with Namespace() if args.namespace else Loopback() as network:
        rows = run(pair, sorted(args.delays), prompts, args.n_predict, args.threads, network)
    found = {**env, "waits": {name: waits(rows, name) for name in SYSTEMS}, "rows": rows}
    text = markdown(rows, f"Load of the machine at the start: {env['load']:.1f}. {record.footer(env)}")
    return record.publish(args.out, found, text)


if __name__ == "__main__":
    record.run(main)
