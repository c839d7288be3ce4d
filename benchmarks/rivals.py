"""Other projects' ways to draft without a model, which of their systems are worth measuring at length, and ours over
the best of each project."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks import record
from benchmarks.http_load import Answer
from benchmarks.record import say
from benchmarks.systems import OURS, PLAIN, acceptance_length, pick, speed

# Upstream's, at its own settings, and the simplest one at the lengths that were best with real models.
UPSTREAM_LOOKUP = {
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-simple 8, 32": [
        "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "8", "--spec-ngram-simple-size-m", "32",
    ],
    "ngram-map-k": ["--spec-type", "ngram-map-k"],
    "ngram-map-k4v": ["--spec-type", "ngram-map-k4v"],
    "ngram-mod": ["--spec-type", "ngram-mod"],
    "ngram-cache": ["--spec-type", "ngram-cache"],
}  # fmt: skip
# ik_llama.cpp's, at the settings of its own examples.
PEER_LOOKUP = {
    "plain": [],
    "suffix": ["--spec-type", "suffix:n_max=16,n_min=2,suffix_min_match_len=5,suffix_max_depth=64"],
    "ngram-mod": ["--spec-type", "ngram-mod:n_max=64,n_min=2,ngram_size_n=8"],
}
FAR = 0.7  # of the speed of its project's best

Answers = dict[str, list[list[Answer]]]  # system -> repeat -> prompt


def projects(systems: Iterable[str], peers: Sequence[str]) -> dict[str, list[str]]:
    """The systems of upstream, plain decoding among them, and of each peer."""
    names = list(systems)
    return {
        "upstream": [name for name in names if name == PLAIN or name.startswith("upstream ")],
        **{peer: [name for name in names if name.startswith(f"{peer} ")] for peer in peers},
    }


def one_of_each(prompts: Sequence[dict[str, Any]], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The first prompt of each kind; `kinds` are those of all."""
    return [prompts[kinds.index(kind)] for kind in dict.fromkeys(kinds)]


def qualified(answers: Mapping[str, Sequence[Answer]], peers: Sequence[str]) -> list[str]:
    """The systems that may be their project's best at some kind of prompt, by an answer to one of each; plain and ours
    always."""
    members_of = projects(answers, peers)
    rivals = {name for members in members_of.values() for name in members}
    names = [name for name in answers if name == PLAIN or name not in rivals]
    for members in members_of.values():
        for speeds in zip(*([(speed([one]), name) for one in answers[name]] for name in members), strict=True):
            names += [name for value, name in speeds if value >= FAR * max(speeds)[0]]
    return [name for name in answers if name in names]


def rounds(
    turns: Callable[[Mapping[str, list[str]], Sequence[dict[str, Any]], int], dict[str, list[Answer]]],
    commands: Mapping[str, list[str]], prompts: Sequence[dict[str, Any]], kinds: Sequence[str], n: int,
    temperature: float, repeats: int, peers: Sequence[str],
) -> tuple[Answers, dict[str, float]]:  # fmt: skip
    """The answers of the systems that qualify, and the first round's tokens per second of those that leave.

    `turns` starts `commands`, lets each answer every body in turn, and ends them; its last argument is whose turn is
    first. They start anew for each repeat, since some keep what they have answered and quote it.
    """
    first = turns(commands, record.requests(one_of_each(prompts, kinds), n, temperature, repeats), 0)
    playing = qualified(first, peers)
    left = {name: round(speed(of), 2) for name, of in first.items() if name not in playing}
    say(f"T{temperature:g}: {', '.join(f'{name} {speed(of):.0f}' for name, of in first.items())}; left: {[*left]}")
    chosen = {name: argv for name, argv in commands.items() if name in playing}
    answers: Answers = {name: [] for name in playing}
    for repeat in range(repeats):
        bodies = record.requests(prompts, n, temperature, repeat)
        for name, of in turns(chosen, bodies, repeat * len(bodies)).items():
            answers[name].append(of)
        say(f"T{temperature:g}, {repeat + 1}/{repeats}")
    return answers, left


def comparison(runs: Mapping[str, Sequence[Sequence[Answer]]], peers: Sequence[str], own_plain: str) -> dict[str, Any]:
    """Of each system's answers in each repeat: tokens per second by repeat, AL, and ours over plain, over the best of
    each project and over `own_plain`, by repeat, with the names of these `bases`."""
    speeds = {name: [round(speed(run), 2) for run in of] for name, of in runs.items()}
    medians = {name: statistics.median(of) for name, of in speeds.items()}
    best = {project: max(names, key=medians.__getitem__) for project, names in projects(runs, peers).items()}
    bases = {PLAIN: PLAIN, **best, own_plain: own_plain}
    return {
        "speeds": speeds, "bases": bases,
        "al": {name: round(acceptance_length([one for run in of for one in run]), 3) for name, of in runs.items()},
        "over": {
            name: [round(ratio, 4) for ratio in record.ratios(speeds[base], speeds[OURS])]
            for name, base in bases.items()
        },
    }  # fmt: skip


def comparisons(
    answers: Mapping[str, Sequence[Sequence[Answer]]], kinds: Sequence[str], peers: Sequence[str], own_plain: str
) -> dict[str, dict[str, Any]]:
    """A comparison for each kind of prompt. `answers`: of each system in each repeat; `kinds`: of all prompts."""
    return {
        kind: comparison(
            {name: [pick(run, kinds, kind) for run in of] for name, of in answers.items()}, peers, own_plain
        )
        for kind in dict.fromkeys(kinds)
    }


def comparison_table(rows: Sequence[Mapping[str, Any]], lead: Sequence[str], own: Sequence[str], footer: str) -> str:
    """A line for each `comparison`: its values of `lead`, tokens per second of plain, of the best of each project and
    of `own` systems, ratios with their ranges, AL."""
    titles = [f"{project}'s best" for project in list(rows[0]["bases"])[1:-1]]
    over = [f"over {name}" for name in ("plain", *titles, "own plain")]
    head = [*lead, "plain", *titles, *own, *over, "AL: ours, upstream's best"]
    lines = []
    for row in rows:
        medians = {name: f"{statistics.median(values):.0f}" for name, values in row["speeds"].items()}
        rivals = list(row["bases"].values())[1:-1]
        lines.append([
            *(f"{row[name]:g}" if isinstance(row[name], float) else row[name] for name in lead),
            medians[PLAIN], *(f"{medians[name]} ({name})" for name in rivals), *(medians[name] for name in own),
            *(f"{statistics.median(x):.2f} ({min(x):.2f}-{max(x):.2f})" for x in row["over"].values()),
            f"{row['al'][OURS]:.2f}, {row['al'][row['bases']['upstream']]:.2f}",
        ])  # fmt: skip
    return f"{record.table(head, lines)}\n\nTokens per second, medians of the repeats. {footer}\n"
