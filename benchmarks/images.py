"""Pictures through HTTP: ours against upstream's own llama-server, with the same target, projector, drafter and flags.

Usage: python benchmarks/images.py [--shape 0.6b] [--type q4_0] [--temperatures 0 1]

The pair is the pocket-VL, inflated, with a vision tower of SigLIP's size; its pictures are held-out drawn scenes. All
servers are resident and take turns at every request: questions with long answers, the same without their pictures, and
streamed ones for the time to the first token. If upstream's DFlash fails with this target, it gets the same weights as
a qwen3, which answers the words alone.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.http_load import Answer, LoadError
from benchmarks.pocket_vl import pictures, scenes
from benchmarks.systems import BUDGET_1, OURS, PLAIN, UPSTREAM, Setting, Systems, order
from dflash_local.build import peer
from dflash_local.demo.shapes import TYPES, Pair

Body = dict[str, Any]

TWINS = {f"{name}, as qwen3": name for name in UPSTREAM}
N_CTX = 1024
SHAPES = ("0.1b", "0.6b")  # whose heads are the pocket-VL's
# The kinds of a conversation's questions. The last one is asked, those before have their true answers.
FORMS = (("describe",), ("list",), ("describe", "list"), ("exists", "list", "describe"))
SHOWN = 4  # shapes of a scene: the most, for the longest answers
# Scenes of the requests for the time to the first token, and their width and height in pixels before they are enlarged.
FIRST_SCENE, SIDES = 10_000, (160, 128)
ENLARGED = (1, 4)
WAITS = ("new picture", "follow-up")
FIRST_WORDS = 8  # tokens of an answer whose first one is waited for
LEAST_AL = 0.9  # with pictures, over the same questions without


@dataclass
class Speed:
    """What one system did over all conversations of one repeat."""

    tokens: int = 0  # after the first of each answer
    seconds: float = 0.0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    texts: list[str] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        self.tokens += answer.n_tokens - 1
        self.seconds += answer.generate
        self.passes += answer.passes
        self.drafted += answer.n_drafted
        self.accepted += answer.n_accepted
        self.texts.append(answer.text)

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


Speeds = dict[str, Speed]
Waits = dict[str, dict[str, list[float]]]  # milliseconds, by what is waited for and by system


class Contest:
    """Systems that take turns. One of upstream's draft lengths that fails is left out of the rest; `left_out` has the
    reason."""

    def __init__(self, systems: Systems, left_out: dict[str, str]) -> None:
        self.systems, self.left_out = systems, left_out

    def order(self, turn: int, *, words: bool = False) -> Iterator[str]:
        """The systems that still take part, in the order of that turn; `words`: with those that read words alone."""
        for name in order(self.systems.names, turn):
            if name not in self.left_out and (words or name not in TWINS):
                yield name

    def ask(self, name: str, body: Body) -> Answer | None:
        """The answer; None if the system is left out because of it. Raises LoadError if plain or ours fails."""
        try:
            (answer,) = self.systems.turn(name, [body]).answers
        except LoadError as error:
            if name not in (*UPSTREAM, *TWINS):
                raise LoadError(f"{name}: {error}") from error
            self.left_out[name] = self.why(name, error)
            record.say(f"{name} is left out: {self.left_out[name]}")
            return None
        return answer

    def why(self, name: str, error: LoadError) -> str:
        """Why a system failed, in a line."""
        said = self.systems.servers[name].complaint()
        return f"its server ends ({said})" if said else str(error).partition("\n")[0]


def message(words: str, shown: scenes.Scene | None = None, enlarged: int = 1) -> Body:
    """What a user says, perhaps with a scene's picture, each pixel `enlarged` times in both directions."""
    if shown is None:
        return {"role": "user", "content": words}
    picture = scenes.draw(shown).repeat(enlarged, axis=0).repeat(enlarged, axis=1)
    image = {"type": "image_url", "image_url": {"url": pictures.data_url(picture)}}
    return {"role": "user", "content": [image, {"type": "text", "text": words}]}


def conversation(seed: int, kinds: Sequence[str], enlarged: int = 1) -> Body:
    """Questions of these kinds about a scene, with the true answers of all but the last one."""
    scene = scenes.scene(seed)
    asked = {question.kind: question for question in scenes.questions(scene, seed)}
    messages: list[Body] = []
    for i, kind in enumerate(kinds):
        messages.append(message(asked[kind].text, None if i else scene, enlarged))
        messages.append({"role": "assistant", "content": asked[kind].answer})
    return {"messages": messages[:-1]}


def conversations(n: int) -> list[Body]:
    """The first n with long answers, of all forms in turn."""
    rich = (seed for seed in itertools.count() if len(scenes.scene(seed).shapes) == SHOWN)
    return [conversation(seed, kinds) for seed, kinds in zip(itertools.islice(rich, n), itertools.cycle(FORMS))]


def without_pictures(body: Body) -> Body:
    """The same words."""

    def words(content: str | list[Body]) -> str:
        if isinstance(content, str):
            return content
        return "".join(part["text"] for part in content if part["type"] == "text")

    return {**body, "messages": [{**said, "content": words(said["content"])} for said in body["messages"]]}


def commands(setting: Setting) -> dict[str, list[str]]:
    """argv of every system that reads pictures."""
    return {**setting.commands(), BUDGET_1: setting.ours("--budget", "1")}


def twins(setting: Setting, target: Path, failed: Collection[str]) -> dict[str, list[str]]:
    """argv of those of upstream's draft lengths that `failed`, with the same weights as a qwen3, which is `target`."""
    words = replace(setting, pair=Pair(target, setting.pair.drafter), mmproj=None)
    return {name: words.commands()[of] for name, of in TWINS.items() if of in failed}


def failures(argvs: Mapping[str, list[str]], body: Body, patience: float) -> dict[str, str]:
    """Those of upstream's draft lengths that do not start, or do not answer a question about a picture, and why."""
    found: dict[str, str] = {}
    for name in UPSTREAM:
        try:
            with Systems({name: argvs[name]}, patience=patience) as systems:
                contest = Contest(systems, found)
                if contest.ask(name, without_pictures(body)) is None:
                    found[name] += ", for words alone too"
                else:
                    contest.ask(name, body)
        except LoadError as error:
            found[name] = str(error).partition("\n")[0]
            record.say(f"{name} is left out: {error}")
    return found


def measure(contest: Contest, bodies: Sequence[Body], repeat: int, *, words: bool = False) -> Speeds:
    """One repeat: all systems answer each request in turn; `words`: the requests have no pictures."""
    speeds: Speeds = {}
    for i, body in enumerate(bodies):
        for name in contest.order(repeat * len(bodies) + i, words=words):
            if answer := contest.ask(name, body):
                speeds.setdefault(name, Speed()).add(answer)
    return speeds


def measure_waits(contest: Contest, n: int) -> Waits:
    """n new pictures of each size, and a second question about each of them."""
    waits: Waits = {}
    wide = (seed for seed in itertools.count(FIRST_SCENE) if sides(scenes.scene(seed)) == SIDES)
    for turn, (seed, enlarged) in enumerate(zip(itertools.islice(wide, n * len(ENLARGED)), itertools.cycle(ENLARGED))):
        both = [conversation(seed, kinds, enlarged) for kinds in (FORMS[0], FORMS[2])]
        bodies = record.requests(both, FIRST_WORDS, 0.0, stream=True, cache_prompt=True)
        for name in contest.order(turn):
            for kind, body in zip(WAITS, bodies, strict=True):
                if answer := contest.ask(name, body):
                    of_kind = waits.setdefault(f"{kind}, {media_rows(enlarged)} rows", {})
                    of_kind.setdefault(name, []).append(round(1e3 * answer.ttft, 2))
    return waits


def sides(scene: scenes.Scene) -> tuple[int, int]:
    return scene.width, scene.height


def media_rows(enlarged: int) -> int:
    """Rows of the target that a picture of `SIDES` takes."""
    return int(np.prod(SIDES)) // pictures.UNIT**2 * enlarged**2


def row(
    temperature: float, seen: Sequence[Speeds], as_text: Sequence[Speeds], left_out: Mapping[str, str]
) -> dict[str, Any]:
    """One temperature's lines: medians over the repeats, with pictures and of the same words alone."""
    both = {"pictures": _systems(seen, left_out), "text": _systems(as_text, left_out)}
    best = {kind: _best(systems) for kind, systems in both.items()}
    ours = {kind: systems[OURS]["rate"] for kind, systems in both.items()}
    over_best = {kind: ours[kind] / systems[best[kind]]["rate"] for kind, systems in both.items()}
    over_plain = {kind: ours[kind] / systems[PLAIN]["rate"] for kind, systems in both.items()}
    share = both["pictures"][OURS]["al"] / both["text"][OURS]["al"]
    return {
        "temperature": temperature, **both, "left_out": dict(left_out), "best": best,
        "over_best": over_best, "over_plain": over_plain, "al_share": share,
        "held": min(*over_best.values(), *over_plain.values()) > 1 and share >= LEAST_AL,
        "all": [_recorded(speeds) for speeds in seen], "all_as_text": [_recorded(speeds) for speeds in as_text],
    }  # fmt: skip


def _recorded(speeds: Speeds) -> dict[str, Any]:
    return {name: asdict(speed) for name, speed in speeds.items()}


def _best(systems: Mapping[str, Mapping[str, Any]]) -> str:
    """The fastest of upstream's draft lengths; plain if there is none."""
    drafting = [name for name in (*UPSTREAM, *TWINS) if name in systems]
    return max(drafting, key=lambda name: systems[name]["rate"], default=PLAIN)


def _systems(repeats: Sequence[Speeds], left_out: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {name: _system(name, repeats) for name in repeats[0] if name not in left_out}


def _system(name: str, repeats: Sequence[Speeds]) -> dict[str, Any]:
    rates = [speeds[name].rate for speeds in repeats]
    tokens, passes, drafted, accepted = (
        sum(getattr(speeds[name], count) for speeds in repeats) for count in ("tokens", "passes", "drafted", "accepted")
    )
    texts, plain = repeats[0][name].texts, repeats[0][PLAIN].texts
    return {
        "rate": statistics.median(rates), "rates": rates, "al": tokens / max(1, passes),
        "acceptance": accepted / drafted if drafted else None,
        "same_as_plain": sum(a == b for a, b in zip(texts, plain, strict=True)), "answers": len(texts),
    }  # fmt: skip


def waits_row(waits: Waits, left_out: Mapping[str, str]) -> dict[str, Any]:
    """The line of the first tokens: medians, and ours over plain upstream's."""
    all_in = {
        kind: {name: values for name, values in of_kind.items() if name not in left_out}
        for kind, of_kind in waits.items()
    }
    medians = {
        kind: {name: statistics.median(values) for name, values in of_kind.items()} for kind, of_kind in all_in.items()
    }
    ratios = {kind: of_kind[OURS] / of_kind[PLAIN] for kind, of_kind in medians.items()}
    return {"first_token_ms": medians, "over_plain": ratios, "held": max(ratios.values()) <= 1, "all": all_in}


def markdown(rows: Sequence[Mapping[str, Any]], footer: str) -> str:
    speeds, waits = [r for r in rows if "temperature" in r], [r for r in rows if "first_token_ms" in r]
    head = ["temperature", "system", "tok/s with pictures", "AL", "accepted drafts", "same text as plain"]
    head += ["tok/s without", "AL without", "AL with over without"]
    lines = [_line(r, name) for r in speeds for name in r["text"]]
    parts = [record.table(head, lines)]
    parts += [_waits_table(r) for r in waits]
    parts += [_verdict(r) for r in speeds]
    parts += [
        f"First tokens: {kind}, ours over plain {ratio:.2f} ({record.verdict(ratio <= 1)}: at most 1)."
        for r in waits
        for kind, ratio in r["over_plain"].items()
    ]
    left_out: dict[str, dict[str, None]] = {}
    for name, why in (found for r in speeds for found in r["left_out"].items()):
        left_out.setdefault(why, {})[name] = None
    parts += [f"Left out: {', '.join(names)}: {why}" for why, names in left_out.items()]
    parts.append(
        "Tokens per second after each answer's first, medians of the repeats, in brackets the lowest and the highest; "
        "without: the same words without their pictures. The time to the first token is the client's, streamed; "
        f"the rows are the picture's. {footer}"
    )
    return "\n\n".join(parts) + "\n"


def _line(row: Mapping[str, Any], name: str) -> list[str]:
    seen, words = row["pictures"].get(name), row["text"][name]
    start, alone = [f"{row['temperature']:g}", name], [_rate(words), f"{words['al']:.2f}"]
    if seen is None:
        return [*start, *["-"] * 4, *alone, "-"]
    accepted = "-" if seen["acceptance"] is None else f"{seen['acceptance']:.0%}"
    cells = [_rate(seen), f"{seen['al']:.2f}", accepted, f"{seen['same_as_plain']} of {seen['answers']}"]
    return [*start, *cells, *alone, f"{seen['al'] / words['al']:.2f}"]


def _rate(system: Mapping[str, Any]) -> str:
    return f"{system['rate']:.1f} ({min(system['rates']):.1f}-{max(system['rates']):.1f})"


def _waits_table(row: Mapping[str, Any]) -> str:
    kinds = row["first_token_ms"]
    lines = []
    for name in next(iter(kinds.values())):
        cells = [
            f"{medians[name]:.0f} ({min(row['all'][kind][name]):.0f}-{max(row['all'][kind][name]):.0f})"
            for kind, medians in kinds.items()
        ]
        lines.append([name, *cells])
    return record.table(["first token, ms", *kinds], lines)


def _verdict(row: Mapping[str, Any]) -> str:
    found = [
        f"ours {words} over upstream's best ({row['best'][kind]}) {row['over_best'][kind]:.2f}, over plain "
        f"{row['over_plain'][kind]:.2f} "
        f"({record.verdict(min(row['over_best'][kind], row['over_plain'][kind]) > 1)}: more than 1)"
        for kind, words in (("pictures", "with pictures"), ("text", "without"))
    ]
    share = record.verdict(row["al_share"] >= LEAST_AL)
    return (
        f"At {row['temperature']:g}: {'; '.join(found)}; our AL with pictures over that without {row['al_share']:.2f} "
        f"({share}: at least {LEAST_AL})."
    )


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "images", n_predict=120, repeats=3, limit=6)
    ap.add_argument("--shape", choices=SHAPES, default="0.6b", help="of the inflated pair")
    ap.add_argument("--type", choices=TYPES, default="q4_0", dest="ftype", help="quantization of target and drafter")
    record.add_temperatures_option(ap, 0.0, 1.0)
    record.add_work_option(ap)
    ap.add_argument(
        "--patience", type=float, default=60.0, metavar="SECONDS", help="silence after which a server counts as hung"
    )
    args = ap.parse_args(argv)
    start = time.monotonic()
    table = record.Table(ap, args, markdown)
    bins = peer.build()
    target, mmproj, drafter = pairs.make_seeing(args.work, args.shape, args.ftype)
    setting = Setting(Pair(target, drafter), bins, 1, args.threads, N_CTX, mmproj=mmproj)
    argvs = commands(setting)
    asked = conversations(args.limit)
    left_out = failures(argvs, record.requests(asked[:1], args.n_predict, 0.0)[0], args.patience)
    if left_out:
        argvs |= twins(setting, pairs.text_twin(args.work, target), left_out)
    able = {name: argv for name, argv in argvs.items() if name not in left_out}
    with Systems(able, patience=args.patience) as systems:
        contest = Contest(systems, left_out)
        systems.warm_up(record.requests([without_pictures(asked[0])], args.n_predict, 0.0))
        measure(contest, record.requests(asked[:1], args.n_predict, 0.0), 0)
        for temperature in args.temperatures:
            seen, as_text = [], []
            for repeat in range(args.repeats):
                bodies = record.requests(asked, args.n_predict, temperature, repeat)
                seen.append(measure(contest, bodies, repeat))
                as_text.append(measure(contest, [without_pictures(body) for body in bodies], repeat, words=True))
            table.add(row(temperature, seen, as_text, left_out))
            record.say(f"{time.monotonic() - start:.0f} s, " + _verdict(table.rows[-1]))
        table.add(waits_row(measure_waits(contest, 2 * args.repeats), left_out))
    record.say(f"{time.monotonic() - start:.0f} s")
    return table.show()


if __name__ == "__main__":
    record.run(main)
