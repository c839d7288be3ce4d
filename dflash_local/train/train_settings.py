"""TrainSettings: what a training run is asked for, checked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from dflash_local.errors import RequestError

Kind = Literal["dflash", "dflash2", "dspark"]
Part = Literal["fc", "heads", "lora"]
Goal = Literal["text", "distill"]
Weights = Literal["dpace", "decay"]
Device = Literal["auto", "cpu", "cuda", "mps"]

KINDS: tuple[str, ...] = get_args(Kind)
PARTS: tuple[str, ...] = get_args(Part)
GOALS: tuple[str, ...] = get_args(Goal)
WEIGHTS: tuple[str, ...] = get_args(Weights)
DEVICES: tuple[str, ...] = get_args(Device)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """All settings of a run, by the names of its flags.

    `init` is the drafter to go on from; None: a new one, whose shape `kind`, `layers`, `block` and `taps` (Hugging Face
    layer ids; None: spread over the target) say. With `init` they must be None or agree with it. `minutes` bounds the
    whole run, `epochs` the fit: how often each token of an answer is an anchor. `rate` None: by the drafter's width.
    """

    model: Path
    data: tuple[Path, ...]
    output: Path
    work: Path
    init: Path | None = None
    kind: Kind | None = None
    layers: int | None = None
    block: int | None = None
    taps: tuple[int, ...] | None = None
    only: Part | None = None
    rank: int = 16
    minutes: float | None = None
    epochs: float = 4.0
    # answer
    held_out: int = 10
    checks: tuple[Path, ...] = ()  # files of prompts that are only measured, before and after
    temperatures: tuple[float, ...] = (0.0, 0.7)
    rounds: int | None = None  # answers to each prompt; None: by the temperatures and the time
    n_predict: int = 256
    slots: int = 8
    # tap
    length: int = 1024
    top_k: int = 8
    shard_mib: int = 256
    # fit
    goal: Goal = "text"
    weights: Weights = "dpace"
    rate: float | None = None
    batch: int = 128
    micro: int = 0
    head_rows: int = 8192
    draft_vocab: int | None = None  # tokens that the result may propose, 0: all; None: as is faster
    device: Device = "auto"
    threads: int | None = None
    evaluations: int = 2
    budget: int = 16
    outtype: str = "q8_0"
    hf: Path | None = None
    report: Path | None = None
    seed: int = 1
    engine: dict[str, Any] = field(default_factory=dict)  # further arguments of Engine: devices, layers on the GPU

    def temperature(self, number: int) -> float | None:
        """Of round `number` of answers: one after the other, 0 only once, since it always gives the same; None: there
        is no such round."""
        n_rounds = self.rounds or (_MOST_ROUNDS if self.minutes else len(self.temperatures))
        if number >= n_rounds:
            return None
        if number < len(self.temperatures):
            return self.temperatures[number]
        drawn = [value for value in self.temperatures if value > 0]
        return drawn[(number - len(self.temperatures)) % len(drawn)] if drawn else None

    @property
    def n_likeliest(self) -> int:
        """The target's likeliest tokens that are stored at each place: text alone needs none."""
        return self.top_k if self.goal == "distill" else 0

    def n_rounds(self) -> int:
        """Answers to each prompt, at most."""
        return next(number for number in itertools.count() if self.temperature(number) is None)

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RequestError(f"{flag(name)} must be from {low:g} to {high:g}, got {value:g}", param=flag(name))
        if not self.data:
            raise RequestError("no prompts to learn from", param="--data", hint="give --data a file or a folder")
        if not self.temperatures or not all(0 <= value <= 2 for value in self.temperatures):
            raise RequestError("--temperatures must be numbers from 0 to 2", param="--temperatures")
        if self.only and self.init is None:
            raise RequestError(
                "--only trains a part of a drafter that is there already", param="--only", hint="give --init DRAFTER"
            )
        if self.taps is not None and (not self.taps or len(set(self.taps)) < len(self.taps)):
            raise RequestError("--taps must be different layers", param="--taps")


_MOST_ROUNDS = 16

_RANGES: dict[str, tuple[float, float]] = {
    "layers": (1, 64),
    "block": (2, 64),
    "rank": (1, 1024),
    "minutes": (0.05, 1e6),
    "epochs": (0.01, 1e6),
    "held_out": (1, 1000),
    "rounds": (1, 10000),
    "n_predict": (8, 1 << 20),
    "slots": (1, 64),
    "length": (32, 1 << 20),
    "top_k": (1, 256),
    "shard_mib": (1, 1 << 16),
    "rate": (1e-8, 1.0),
    "batch": (1, 1 << 20),
    "micro": (0, 1 << 20),
    "head_rows": (64, 1 << 22),
    "draft_vocab": (0, 1 << 22),
    "threads": (1, 4096),
    "evaluations": (0, 1000),
    "budget": (2, 64),
}


def flag(name: str) -> str:
    """The flag of a setting."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


_FLAGS = {"n_predict": "--predict", "model": "-m", "output": "-o", "texts": "answers to learn from:"}


class Watcher:
    """Receives what a run says of its progress."""

    def stage(self, name: str, text: str) -> None:
        """A stage begins: "answer", "tap" or "fit"."""

    def progress(self, done: float, total: float, text: str) -> None:
        """`done` of `total` of the stage's work; `text` has figures."""

    def note(self, text: str) -> None:
        """One sentence of its own."""


Stop = Callable[[], bool]
