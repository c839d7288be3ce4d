"""Time from the start of a server's process to its first answer, ours against upstream's, on real models.

Usage: python benchmarks/load_time.py [--models smollm2 qwen2.5-coder]

Each start is a new process that answers one chat request of one token; the file is in the page cache. Upstream's server
is unpatched, with the same flags. Ours warm finds in its cache what passes cost; ours first measures that, as the first
start with a model does. Systems take turns. CPU seconds are the whole process's, until the answer.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# As a script, this file's siblings are found as the package `benchmarks`.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import real_models, record
from benchmarks.http_load import Server, run_load
from benchmarks.systems import order
from dflash_local.build import peer

UPSTREAM, WARM, FIRST = "upstream", "ours, warm", "ours, first"
N_CTX = 4096
LIMIT = 1.2  # times upstream's


class Start(NamedTuple):
    """Seconds until the server was ready and until its first answer was read; CPU seconds of its process."""

    ready: float
    answered: float
    cpu: float


def commands(target: Path, bins: Path, threads: int) -> dict[str, list[str]]:
    """argv of every system."""
    common = ["-m", str(target), "-c", str(N_CTX), "-np", "1", "-t", str(threads), "-fa", "on"]
    ours = [sys.executable, "-m", "dflash_local.cli", "serve", *common]
    return {
        UPSTREAM: [str(bins / "llama-server"), *common, "-cram", "0", "--fit", "off", "--no-webui", "-lv", "2"],
        WARM: ours,
        FIRST: [*ours, "--no-cost-cache"],
    }


def start(name: str, argv: Sequence[str], bodies: Sequence[dict[str, Any]], logs: Path) -> Start:
    """Start a server, send it the requests, and end it."""
    begun = time.monotonic()
    with Server(name, argv, logs / "server.log") as server:
        ready = time.monotonic() - begun
        run_load(server.port, bodies, 1)
        return Start(ready, time.monotonic() - begun, server.cpu_seconds())


def measure(
    systems: Mapping[str, Sequence[str]], bodies: Sequence[dict[str, Any]], logs: Path, repeats: int
) -> dict[str, list[Start]]:
    """All systems in turns, after one start of each that is not counted: it fills the page cache and ours."""
    starts: dict[str, list[Start]] = {name: [] for name in systems}
    for repeat in range(repeats + 1):
        for name in order(list(systems), repeat):
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


def markdown(data: Mapping[str, Any]) -> str:
    head = ["model", "server", "ready, s", "first answer, s", "CPU, s", "over upstream", f"at most {LIMIT}"]
    lines = []
    for r in data["rows"]:
        ratios = {WARM: r["warm_over_upstream"], FIRST: r["first_over_upstream"]}
        for name, values in r["seconds"].items():
            ratio = ratios.get(name)
            verdict = "" if ratio is None else "held" if ratio <= LIMIT else "MISSED"
            cells = [*(f"{value:.2f}" for value in values), "" if ratio is None else f"{ratio:.2f}", verdict]
            lines.append([r["model"] if name == UPSTREAM else "", name, *cells])
    return f"{record.table(head, lines)}\n\n{record.footer(data)}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "load_time", n_predict=1, repeats=7)
    ap.set_defaults(limit=1)
    ap.add_argument("--models", nargs="+", choices=real_models.MODELS, default=["smollm2", "qwen2.5-coder"])
    args = ap.parse_args(argv)
    data = {**record.environment(ap, args), "rows": []}
    bodies = record.requests(record.read_prompts(args.prompts, args.limit), args.n_predict, 0.0)
    bins = peer.build()
    for name in args.models:
        systems = commands(real_models.fetch(name), bins, args.threads)
        with tempfile.TemporaryDirectory(prefix="load-time-") as logs:
            starts = measure(systems, bodies, Path(logs), args.repeats)
        data["rows"].append(row(real_models.MODELS[name].title, starts))
        record.say(str({key: value for key, value in data["rows"][-1].items() if key != "all"}))
        record.save(args.out, data, markdown(data))
    print(markdown(data))
    return 0


if __name__ == "__main__":
    record.run(main)
