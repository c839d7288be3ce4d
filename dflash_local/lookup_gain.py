"""What prompt lookup brings on this machine: a text that repeats its prompt and one that does not, each plain and with
lookup."""

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


class Gain(NamedTuple):
    """One text. Speeds in tokens per second, the median of REPEATS answers; `al`: the acceptance length with lookup."""

    text: str
    plain: float
    lookup: float
    al: float
    same: bool  # the answers are equal

    @property
    def speedup(self) -> float:
        return self.lookup / self.plain if self.plain else 0.0


def measure(engine: Engine) -> Iterator[Gain]:
    """Answer each of TEXTS plain and with lookup, in turns, after one answer of each as a warm-up."""
    budgets: dict[str, int | Literal["auto"]] = {"plain": 1, "lookup": "auto"}
    for text, prompt in TEXTS.items():
        first = {name: _run(engine, prompt, budget) for name, budget in budgets.items()}
        runs: dict[str, list[Run]] = {name: [] for name in budgets}
        for repeat in range(REPEATS):
            for name in list(budgets)[:: -1 if repeat % 2 else 1]:
                runs[name].append(_run(engine, prompt, budgets[name]))
        plain, lookup = (Summary.of([[run] for run in runs[name]]) for name in budgets)
        same = first["plain"].text == first["lookup"].text
        yield Gain(text, plain.tokens_per_second, lookup.tokens_per_second, lookup.al, same)


def _run(engine: Engine, prompt: str, budget: int | Literal["auto"]) -> Run:
    return answer(engine, {"messages": user_message(prompt)}, SamplingParams(temperature=0.0), N_PREDICT, budget)


def table(gains: Iterator[Gain]) -> Iterator[str]:
    """Lines for people, each as soon as it is known."""
    yield f"{'the answer':<20} {'plain':>8} {'lookup':>8}   tokens per second"
    differs = False
    for gain in gains:
        what = f"{gain.speedup:.2f} times plain, {gain.al:.1f} tokens per target pass"
        yield f"{gain.text:<20} {gain.plain:8.1f} {gain.lookup:8.1f}   {what}"
        differs = differs or not gain.same
    yield "the answers differ where two tokens were almost equally likely" if differs else "the same answers both ways"
