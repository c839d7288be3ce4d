"""`dflash-local train`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.engine_flags import count, numbers
from dflash_local.cli.flags.model_file import check_model_file
from dflash_local.cli.usage import Commands, add_command
from dflash_local.convert import OUTTYPES
from dflash_local.errors import RequestError
from dflash_local.train.train_settings import DEVICES, GOALS, KINDS, PARTS, WEIGHTS, TrainSettings, Watcher
from dflash_local.train.workspace import STAGES

if TYPE_CHECKING:
    from dflash_local.train.training import Result

_DESCRIPTION = """\
Train a drafter for the very GGUF that you run, or continue one for your kind of text.

  dflash-local train -m TARGET.gguf --init DRAFTER --data prompts.txt --minutes 20 -o NEW.gguf   (what most people need)
  dflash-local train -m TARGET.gguf --data prompts.txt -o NEW.gguf                              (from nothing: hours)

Three stages: the target answers the prompts, one pass stores its hidden states, a drafter is fitted to them. A run that
was stopped goes on when the same command is given again. See docs/training.md.
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(commands, "train", run, "train a drafter for your own model and prompts", _DESCRIPTION)
    add = parser.add_argument
    add("-m", "--model", type=Path, required=True, metavar="TARGET.gguf", help="the model that you run")
    add("--data", type=Path, action="append", required=True, metavar="PATH",
        help="prompts: a file with one a line (text, or JSON with 'messages' or 'prompt'), or a folder of such files; "
        "may be given several times")  # fmt: skip
    add("-o", "--output", type=Path, required=True, metavar="OUT.gguf", help="the drafter to write")
    add("--init", type=Path, metavar="DRAFTER", help="drafter to continue: a GGUF, or a Hugging Face folder")
    add("--only", choices=PARTS, help="train only a part of it: fc (how hidden states are read), heads (what its kind "
        "adds), lora (small changes everywhere, with little memory)")  # fmt: skip
    add("--minutes", type=float, metavar="N", help="time for all stages together")
    add("--plan", action="store_true", help="only say what it takes: memory, time, disk")
    add("--restart", choices=STAGES, help="do this stage and those after it anew")
    add("--work", type=Path, metavar="DIR", help="folder for what the stages leave (default: beside OUT, '.train')")
    add("--hf", type=Path, metavar="DIR", help="also write a Hugging Face folder")
    add("--report", type=Path, metavar="FILE.html", help="also write a report")
    add("-q", "--quiet", action="store_true", help="show no progress")

    shape = parser.add_argument_group("a new drafter", "without --init")
    shape.add_argument("--kind", choices=KINDS, help="default: dflash")
    shape.add_argument("--layers", type=count(1), metavar="N", help="default: 3")
    shape.add_argument(
        "--block", type=count(2), metavar="N", help="tokens of a block, the known one counted (default: 16)"
    )
    shape.add_argument("--taps", type=numbers(int), metavar="ID,...", help="layers of the target that it reads, by "
                       "their Hugging Face ids (default: five, evenly spread)")  # fmt: skip

    texts = parser.add_argument_group("training text")
    texts.add_argument("--temperatures", type=numbers(float), metavar="T,...",
                       help="each prompt is answered once at each of them (default: 0,0.7)")  # fmt: skip
    texts.add_argument("--rounds", type=count(1), metavar="N", help="answers to each prompt (default: by the "
                       "temperatures; with --minutes as many as there is time for)")  # fmt: skip
    texts.add_argument("-n", "--predict", dest="n_predict", type=count(8), metavar="N", help="most tokens of an answer "
                       "(default: 256)")  # fmt: skip
    texts.add_argument("--length", type=count(32), metavar="N", help="most tokens of prompt and answer (default: 1024)")
    texts.add_argument("--slots", "-np", type=count(1), metavar="N", help="answers at the same time (default: 8)")
    texts.add_argument("--held-out", type=count(1), metavar="N", help="prompts that are only measured on (default: 10)")
    texts.add_argument("--check", dest="checks", type=Path, action="append", metavar="FILE",
                       help="other prompts, whose AL is measured before and after")  # fmt: skip
    texts.add_argument("--shard-mib", type=count(1), metavar="N", help="size of the files with hidden states "
                       "(default: 256)")  # fmt: skip

    fit = parser.add_argument_group("fit")
    fit.add_argument("--epochs", type=float, metavar="N", help="how often each token is learned from (default: 4)")
    fit.add_argument("--rate", type=float, metavar="R", help="highest learning rate (default: by the drafter)")
    fit.add_argument("--batch", type=count(1), metavar="N", help="anchors of a step (default: 128)")
    fit.add_argument("--micro", type=count(), metavar="N", help="texts computed at once; less takes less memory "
                     "(default: 4, on a GPU 32)")  # fmt: skip
    fit.add_argument(
        "--goal", choices=GOALS, help="learn from the target's text, or from its distribution (default: text)"
    )
    fit.add_argument("--weights", choices=WEIGHTS, help="of a block's positions: D-PACE, or falling (default: dpace)")
    fit.add_argument("--rank", type=count(1), metavar="N", help="of --only lora (default: 16)")
    fit.add_argument(
        "--top-k", type=count(1), metavar="N", help="likeliest tokens that --goal distill learns (default: 8)"
    )
    fit.add_argument("--head-rows", type=count(64), metavar="N", help="frequent tokens that every step chooses among "
                     "(default: 8192)")  # fmt: skip
    fit.add_argument("--draft-vocab", type=count(), metavar="N", help="frequent tokens that the result may propose, 0: "
                     "all (default: nearly all of the answers', if that is measured to be faster)")  # fmt: skip
    fit.add_argument("--evaluations", type=count(), metavar="N", help="measurements on the way (default: 2)")
    fit.add_argument("--budget", type=count(2), metavar="N", help="nodes of the trees with which AL is measured "
                     "(default: 16)")  # fmt: skip
    fit.add_argument("--outtype", choices=OUTTYPES, help="type of the result's matrices (default: q8_0)")
    fit.add_argument("--seed", type=count(), metavar="N", help="default: 1")

    machine = parser.add_argument_group("machine")
    machine.add_argument("--device", choices=DEVICES, help="where torch computes (default: auto)")
    machine.add_argument("-t", "--threads", type=count(1), metavar="N", help="CPU threads (default: all cores)")
    machine.add_argument("-ngl", "--n-gpu-layers", dest="n_gpu_layers", type=count(-1), metavar="N",
                         help="layers of the target on the GPU (default: all)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    check_model_file(str(args.model), "-m")
    settings = settings_of(args)
    if args.plan:
        from dflash_local.train.estimate import estimate

        print(*estimate(settings), sep="\n")
        return 0
    from dflash_local.train.training import train

    watcher = Watcher() if args.quiet else _Terminal()
    try:
        result = train(settings, watcher, args.restart)
    finally:
        if isinstance(watcher, _Terminal):
            watcher.close()
    if settings.report:
        _write_report(settings.report, result, settings)
    print(*summary(result, settings), sep="\n")
    return 0


def _write_report(path: Path, result: Result, settings: TrainSettings) -> None:
    from dflash_local.report.train_page import Measured, TrainRecord, train_page

    record = TrainRecord(
        target=settings.model.name,
        output=result.output.name,
        init=settings.init.name if settings.init else None,
        nodes=settings.budget,
        measured=[Measured(e.share, e.step, e.minutes, e.al, e.depths) for e in result.evaluations],
        losses=list(zip(result.course["share"], result.course["entropy"], strict=True)),
        plain=result.after.plain,
        drafted=result.after.drafted,
        drafted_before=result.before.drafted if result.before else None,
        checks=result.checks,
        facts={name: value for name, value in result.history.items() if value is not None},
    )
    try:
        path.write_text(train_page(record), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}", param="--report") from None


def settings_of(args: argparse.Namespace) -> TrainSettings:
    """Raises RequestError."""
    given = {
        name: value
        for name, value in vars(args).items()
        if value is not None and name in TrainSettings.__dataclass_fields__
    }
    for name in ("data", "checks"):
        if name in given:
            given[name] = tuple(given[name])
    given.setdefault("work", args.output.with_suffix(".train"))
    if args.n_gpu_layers is not None:
        given["engine"] = {"n_gpu_layers": args.n_gpu_layers}
    return TrainSettings(**given)


def summary(result: Result, settings: TrainSettings) -> list[str]:
    """Lines about a finished run."""
    first, best = result.evaluations[0], result.best
    was = f"AL {first.al:.2f} -> {best.al:.2f}" if first.step == 0 else f"AL {best.al:.2f}"
    before, after = result.before, result.after
    served = f"AL {before.al:.2f} -> {after.al:.2f}" if before else f"AL {after.al:.2f}"
    lines = [
        f"{result.output}: {was} by the drafter alone, on held-out prompts at temperature 0, {settings.budget} nodes",
        f"  as it is served, with prompt lookup: {served}",
        f"  {after.drafted:.1f} tok/s, plain {after.plain:.1f}" + (f", before {before.drafted:.1f}" if before else ""),
    ]
    for name, (old, new) in result.checks.items():
        lines.append(f"  {name}: AL {new:.2f}" + ("" if old is None else f", before {old:.2f}"))
    minutes = {name: value / 60 for name, value in result.seconds.items()}
    lines.append("  minutes: " + ", ".join(f"{name} {value:.1f}" for name, value in minutes.items()))
    if first.step == 0 and best.al < first.al:
        lines.append(
            "warning: the drafter did not get better; keep the old one, or give more prompts of your kind, more time "
            "or a lower --rate"
        )
    lines.append(f"  next: dflash-local serve -m {settings.model} -md {result.output}")
    return lines


class _Terminal(Watcher):
    """Progress on stderr: one line that is rewritten on a terminal, elsewhere a line now and then."""

    _PERIOD = 15.0  # seconds between lines that stay

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._name, self._began, self._first, self._last = "", 0.0, 0.0, 0.0
        self._open = self._ended = False

    def stage(self, name: str, text: str) -> None:
        self.close()
        self._name, self._began, self._first, self._last = name, time.monotonic(), -1.0, 0.0
        self._ended = False
        self._print(f"{name} ({STAGES.index(name) + 1} of {len(STAGES)}): {text}")

    def note(self, text: str) -> None:
        self.close()
        self._print(f"  {text}")

    def progress(self, done: float, total: float, text: str) -> None:
        now, share = time.monotonic(), done / total if total else 1.0
        if self._first < 0:
            self._first, self._began = share, now
        ends = share >= 1 and not self._ended
        if now - self._last < (0.1 if self._live else self._PERIOD) and not ends:
            return
        self._last, self._ended = now, share >= 1
        gained = share - self._first
        left = (now - self._began) * (1 - share) / gained if gained > 0 else 0.0
        line = f"  {share:4.0%} {text}" + (f", {_duration(left)} left" if left else "")
        if not self._live:
            self._print(line)
            return
        columns = shutil.get_terminal_size().columns
        bar = f"  [{'#' * int(20 * share):<20}]"
        self._stream.write("\r" + (bar + line)[: columns - 1].ljust(columns - 1))
        self._stream.flush()
        self._open = True

    def close(self) -> None:
        if self._open:
            self._stream.write("\n")
            self._open = False

    def _print(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"
