"""TrainSettings: what a training run is asked for, checked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dflash_local.convert import FC_TYPES, OUTTYPES
from dflash_local.errors import RequestError
from dflash_local.option import Option, options_of

NEW_DRAFTER, TEXT, FIT, MACHINE = "a new drafter", "training text", "fit", "machine"
ANSWER_SHARE = 0.3  # of a run's minutes, for answering
TAP_SHARE = 0.4  # of a run's minutes, for tapping: more than answers of this run take, not of a large record
LEAST_FIT = 0.3  # of a run's minutes, whatever the other stages took
_ROW_BLOCK = 32  # elements of a row that a quantized type stores together


@dataclass(frozen=True, kw_only=True)
class TrainOption(Option):
    """A setting and its flag: `group` is the title under which --help lists it, `names` are others than the setting's
    own, `limits` the least and the greatest value."""

    group: str = ""
    names: tuple[str, ...] = ()
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None


def _option(text: str = "", default: Any = None, metavar: str | None = None, **facts: Any) -> Any:
    return field(default=default, metadata={"option": TrainOption(help=text, metavar=metavar, **facts)})


def _number(
    group: str, low: float, high: float, text: str = "", default: float | None = None, metavar: str = "N", **facts: Any
) -> Any:
    return _option(text, default, metavar, group=group, limits=(low, high), **facts)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """All settings of a run, each with its flag.

    `init` None: a new drafter. With `init`, the settings of a new one must be None or agree with it, but for
    `feed_forward`, which may be less. `taps` are Hugging
    Face layer ids. `minutes` bounds the whole run, `epochs` the fit: how often each token of an answer is an anchor.
    """

    model: Path = _option("the model that you run", MISSING, "TARGET.gguf", names=("-m", "--model"))
    data: tuple[Path, ...] = _option(
        "prompts: a file with one a line (text, or JSON with 'messages' or 'prompt'), or a folder of such files; "
        "may be given several times",
        MISSING,
        "PATH",
    )
    output: Path = _option("the drafter to write", MISSING, "OUT.gguf", names=("-o", "--output"))
    init: Path | None = _option("drafter to continue: a GGUF, or a Hugging Face folder", metavar="DRAFTER")
    mmproj: Path | None = _option(
        "the model's projector, with which prompts may show images", metavar="GGUF", names=("-mm", "--mmproj")
    )
    only: Literal["fc", "heads", "lora"] | None = _option(
        "train only a part of it: fc (how hidden states are read), heads (what its kind adds), lora (small changes "
        "everywhere, with little memory)"
    )
    minutes: float | None = _number("", 0.05, 1e6, "time for all stages together")
    work: Path = _option("folder for what the stages leave", MISSING, "DIR", default_text="beside OUT, '.train'")
    hf: Path | None = _option("also write a Hugging Face folder", metavar="DIR")
    merge: Path | None = _option("also write the whole target with its new MTP layer", metavar="FILE.gguf")
    report: Path | None = _option("also write a report", metavar="FILE.html")

    kind: Literal["dflash", "dflash2", "dspark", "mtp"] | None = _option(
        "with --init: a DFlash drafter becomes a dflash2 or dspark; mtp: go on with the target's own next-token layer, "
        "or with that of --init",
        default_text="dflash",
        group=NEW_DRAFTER,
    )
    layers: int | None = _number(NEW_DRAFTER, 1, 64, default_text="3")
    block: int | None = _number(
        NEW_DRAFTER, 2, 64, "tokens of a block, the known one counted", default_text="16, mtp 8"
    )
    feed_forward: int | None = _number(
        NEW_DRAFTER, 16, 1 << 20,
        "inner width of its feed-forward parts: less learns and drafts faster, and what --init has more is cut off",
        default_text="the target's, at most four times its width",
    )  # fmt: skip
    taps: tuple[int, ...] | None = _option(
        "layers of the target that it reads, by their Hugging Face ids",
        metavar="ID,...",
        default_text="five, evenly spread",
        group=NEW_DRAFTER,
    )

    temperatures: tuple[float, ...] = _option(
        "each prompt is answered once at each of them", (0.0, 0.7), "T,...", default_text="0,0.7", group=TEXT
    )
    rounds: int | None = _number(
        TEXT, 1, 10000, "answers to each prompt",
        default_text="by the temperatures; with --minutes as many as there is time for",
    )  # fmt: skip
    n_predict: int = _number(TEXT, 8, 1 << 20, "most tokens of an answer", 256, names=("-n", "--predict"))
    length: int = _number(TEXT, 32, 1 << 20, "most tokens of prompt and answer", 1024)
    slots: int = _number(TEXT, 1, 64, "answers at the same time", 16, names=("--slots", "-np"))
    held_out: int = _number(TEXT, 1, 1000, "prompts that are only measured on", 10)
    checks: tuple[Path, ...] = _option(
        "other prompts, whose AL is measured before and after", (), "FILE", group=TEXT, names=("--check",)
    )
    shard_mib: int = _number(TEXT, 1, 1 << 16, "size of the files with hidden states", 256)

    epochs: float | None = _number(
        FIT, 0.01, 1e6, "how often each token is learned from",
        default_text="4; with --minutes as often as there is time for",
    )  # fmt: skip
    rate: float | None = _number(FIT, 1e-8, 1.0, "highest learning rate", metavar="R", default_text="by the drafter")
    batch: int = _number(FIT, 1, 1 << 20, "anchors of a step", 128)
    micro: int = _number(
        FIT, 0, 1 << 20, "texts computed at once; less takes less memory", 0, default_text="4, on a GPU 32"
    )
    goal: Literal["text", "distill"] = _option(
        "learn from the target's text, or from its distribution", "text", group=FIT
    )
    weights: Literal["dpace", "decay"] = _option("of a block's positions: D-PACE, or falling", "dpace", group=FIT)
    rank: int = _number(FIT, 1, 1024, "of --only lora", 16)
    top_k: int = _number(FIT, 1, 256, "likeliest tokens that --goal distill learns", 8)
    head_rows: int = _number(FIT, 64, 1 << 22, "frequent tokens that every step chooses among", 8192)
    draft_vocab: int | None = _number(
        FIT, 0, 1 << 22, "frequent tokens that the result may propose, 0: all", None,
        default_text="nearly all of the answers', if that is measured to be faster",
    )  # fmt: skip
    evaluations: int = _number(FIT, 0, 1000, "measurements on the way", 2)
    budget: int = _number(FIT, 2, 64, "nodes of the trees with which AL is measured", 16)
    outtype: str = _option("type of the result's matrices", "q8_0", group=FIT, choices=OUTTYPES)
    fc_type: str | None = _option(
        "type of the projection that reads the hidden states", group=FIT, choices=FC_TYPES,
        default_text="bf16, or f32 as the matrices",
    )  # fmt: skip
    seed: int = _number(FIT, 0, 1 << 62, default=1)

    device: Literal["auto", "cpu", "cuda", "mps"] = _option("where torch computes", "auto", group=MACHINE)
    threads: int | None = _number(MACHINE, 1, 4096, "CPU threads", names=("-t", "--threads"), default_text="all cores")
    engine: dict[str, Any] = field(default_factory=dict)  # further arguments of Engine: devices, layers on the GPU

    def temperature(self, number: int, first: int = 0) -> float | None:
        """Of round `number` of a prompt's answers: one after the other, beginning with the `first`, so that each round
        has all of them; 0 only once, since it always gives the same; None: there is no such round."""
        n_rounds = self.rounds or (_MOST_ROUNDS if self.minutes else len(self.temperatures))
        if number >= n_rounds:
            return None
        if number < len(self.temperatures):
            return self.temperatures[(number + first) % len(self.temperatures)]
        drawn = [value for value in self.temperatures if value > 0]
        return drawn[(number - len(self.temperatures)) % len(drawn)] if drawn else None

    @property
    def n_likeliest(self) -> int:
        """The target's likeliest tokens that are stored at each place: text alone needs none."""
        return self.top_k if self.goal == "distill" else 0

    @property
    def continues(self) -> bool:
        """Is there something to go on from?"""
        return self.init is not None or self.kind == "mtp"

    @property
    def n_epochs(self) -> float:
        """How often each token is learned from, at most."""
        return self.epochs or (math.inf if self.minutes else _EPOCHS)

    def n_rounds(self) -> int:
        """Answers to each prompt, at most."""
        return next(number for number in itertools.count() if self.temperature(number) is None)

    def __post_init__(self) -> None:
        for name, option in options_of(self).items():
            value, (low, high) = getattr(self, name), option.limits or (None, None)
            if value is not None and low is not None and not low <= value <= high:
                raise RequestError(f"{flag(name)} must be from {low:g} to {high:g}, got {value:g}", param=flag(name))
        if not self.data:
            raise RequestError("no prompts to learn from", param="--data", hint="give --data a file or a folder")
        if not self.temperatures or not all(0 <= value <= 2 for value in self.temperatures):
            raise RequestError("--temperatures must be numbers from 0 to 2", param="--temperatures")
        if self.only and not self.continues:
            raise RequestError(
                "--only trains a part of a drafter that is there already", param="--only", hint="give --init DRAFTER"
            )
        if self.taps is not None and (not self.taps or len(set(self.taps)) < len(self.taps)):
            raise RequestError("--taps must be different layers", param="--taps")
        if self.feed_forward is not None and self.feed_forward % _ROW_BLOCK:
            raise RequestError(
                f"--feed-forward must be a multiple of {_ROW_BLOCK}, got {self.feed_forward}", param="--feed-forward"
            )
        self._check_mtp()

    def _check_mtp(self) -> None:
        if self.kind != "mtp":
            if self.merge:
                raise RequestError("--merge writes a target with its MTP layer", param="--merge", hint="add --kind mtp")
            return
        if self.mmproj:
            raise RequestError(
                "an MTP layer is trained on text alone",
                param="--mmproj",
                hint="leave out --mmproj and prompts with images",
            )
        unfit = {
            "layers": self.layers, "feed_forward": self.feed_forward, "taps": self.taps, "hf": self.hf,
            "draft_vocab": self.draft_vocab, "fc_type": self.fc_type,
        }  # fmt: skip
        for name in (name for name, value in unfit.items() if value):
            raise RequestError(
                f"{flag(name)} is not for an MTP layer, which is one layer of the target's own shape and head",
                param=flag(name),
                hint=f"leave {flag(name)} out",
            )
        if self.only == "heads":
            raise RequestError("an MTP layer has no heads of its own", param="--only", hint="--only fc or --only lora")


_MOST_ROUNDS = 16
_EPOCHS = 4.0


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
