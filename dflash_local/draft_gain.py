"""What drafts bring on this machine: a text that repeats its prompt and one that does not, each plain, and by the
drafter, if there is one, and prompt lookup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from dflash_local.bench import Run, Summary, answer, user_message
from dflash_local.sampling import SamplingParams

if TYPE_CHECKING:
    from dflash_local.engine import Engine

N_PREDICT = 96
REPEATS = 2

_FILE = '''\
class Account:
    """The money of one customer."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.total = 0
        self.history = []

    def deposit(self, amount: int) -> None:
        self.total += amount
        self.history.append(("deposit", amount))

    def withdraw(self, amount: int) -> None:
        if amount > self.total:
            raise ValueError("not enough money")
        self.total -= amount
        self.history.append(("withdraw", amount))

    def statement(self) -> str:
        lines = [f"{kind}: {amount}" for kind, amount in self.history]
        return "\\n".join([self.owner, *lines, f"total: {self.total}"])
'''
TEXTS = {
    "repeats its prompt": f"Rename `total` to `balance` in this file. Print the whole file:\n\n```python\n{_FILE}```",
    "does not": "Tell me a story of a lighthouse keeper who finds a letter.",
}


class Way(NamedTuple):
    """How a text is answered: plain, by the drafter alone, by lookup alone, or by both."""

    name: str
    budget: int | Literal["auto"]
    lookup: bool


def ways(engine: Engine) -> tuple[Way, ...]:
    """Plain first, then what drafts here, all of it last."""
    plain = Way("plain", 1, False)
    if engine.info["drafter"]:
        return plain, Way("drafter", "auto", False), Way("both", "auto", True)
    return plain, Way("lookup", "auto", True)


class Gain(NamedTuple):
    """One text. Speeds of each way in tokens per second, the median of REPEATS answers; `al`: the acceptance length of
    the last way."""

    text: str
    speeds: tuple[float, ...]
    al: float
    same: bool  # the answers are equal

    @property
    def speedup(self) -> float:
        plain, *_, last = self.speeds
        return last / plain if plain else 0.0


def measure(engine: Engine) -> Iterator[Gain]:
    """Answer each of TEXTS in all ways, in turns, after one answer in each as a warm-up."""
    found = ways(engine)
    for text, prompt in TEXTS.items():
        first = [_run(engine, prompt, way) for way in found]
        runs: dict[str, list[Run]] = {way.name: [] for way in found}
        for repeat in range(REPEATS):
            for way in found[:: -1 if repeat % 2 else 1]:
                runs[way.name].append(_run(engine, prompt, way))
        summaries = [Summary.of([[run] for run in of]) for of in runs.values()]
        speeds = tuple(summary.tokens_per_second for summary in summaries)
        yield Gain(text, speeds, summaries[-1].al, len({run.text for run in first}) == 1)


def _run(engine: Engine, prompt: str, way: Way) -> Run:
    sampling = SamplingParams(temperature=0.0)
    return answer(engine, {"messages": user_message(prompt)}, sampling, N_PREDICT, way.budget, lookup=way.lookup)


def table(engine: Engine) -> Iterator[str]:
    """What `measure` finds, in lines for people, each as soon as it is known."""
    names = " ".join(f"{way.name:>8}" for way in ways(engine))
    yield f"{'the answer':<20} {names}   tokens per second"
    differs = False
    for gain in measure(engine):
        speeds = " ".join(f"{speed:8.1f}" for speed in gain.speeds)
        what = f"{gain.speedup:.2f} times plain, {gain.al:.1f} tokens per target pass"
        yield f"{gain.text:<20} {speeds}   {what}"
        differs = differs or not gain.same
    yield "the answers differ where two tokens were almost equally likely" if differs else "the same answers all ways"
