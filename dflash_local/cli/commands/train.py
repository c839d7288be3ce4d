"""`dflash-local train`."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.command_parser import DOWNLOAD
from dflash_local.cli.flags.flag import SILENT, FlagGroup, Flags, add_flags, flag, gathered
from dflash_local.cli.flags.model_file import check_model_file
from dflash_local.cli.flags.values import count, numbers, path, write_text
from dflash_local.cli.terminal.progress import StatusLine, duration_text
from dflash_local.errors import RequestError
from dflash_local.option import defaults_of, options_of
from dflash_local.train.train_settings import FIT, MACHINE, NEW_DRAFTER, TEXT, TrainOption, TrainSettings, Watcher
from dflash_local.train.workspace import STAGES

if TYPE_CHECKING:
    from dflash_local.train.training import Result

_DESCRIPTION = """\
Train a drafter for the very GGUF that you run, or continue one for your kind of text.

  dflash-local train -m TARGET.gguf --init DRAFTER --data prompts.txt --minutes 20 -o NEW.gguf   (what most people need)
  dflash-local train -m TARGET.gguf --data prompts.txt -o NEW.gguf                              (from nothing: hours)
  dflash-local train -m TARGET.gguf --kind mtp --data prompts.txt -o mtp-NEW.gguf               (its own MTP layer)

Three stages: the target answers the prompts, one pass stores its hidden states, a drafter is fitted to them. A run that
was stopped goes on when the same command is given again. See docs/training.md.
"""


class RunFlags(Flags):
    """What is done of a run, and what is shown."""

    plan: bool = flag("--plan", "only say what it takes: memory, time, disk")
    restart: str | None = flag("--restart", "repeat this stage and those after it", choices=STAGES)
    quiet: bool = flag("-q --quiet", "show no progress")
    background: bool = flag("--background", SILENT)  # of a server (train/background.py)


class TrainFlags(RunFlags):
    """`settings`: values of TrainSettings; None: not given."""

    settings: Mapping[str, Any] = gathered({name: name for name in options_of(TrainSettings)})
    n_gpu_layers: int | None


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands, "train", TrainFlags, run, "train a drafter for your own model and prompts", _DESCRIPTION
    )
    groups: dict[str, FlagGroup] = {"": parser, NEW_DRAFTER: parser.add_argument_group(NEW_DRAFTER, "without --init")}
    groups |= {title: parser.add_argument_group(title) for title in (TEXT, FIT, MACHINE)}
    defaults, types = defaults_of(TrainSettings), get_type_hints(TrainSettings)
    for name, option in options_of(TrainSettings).items():
        names = option.names or ("--" + name.replace("_", "-"),)
        value = {"metavar": option.metavar, **_value(types[name], option)}
        required = name not in (*defaults, "work")
        groups[option.group].add_argument(
            *names, dest=name, required=required, help=_help(option, defaults.get(name)), **value
        )
    add_flags(parser, RunFlags)
    groups[MACHINE].add_argument(
        "-ngl",
        "--n-gpu-layers",
        dest="n_gpu_layers",
        type=count(-1),
        metavar="N",
        help="layers of the target on the GPU (default: all)",
    )


def _value(annotation: Any, option: TrainOption) -> dict[str, Any]:
    """How argparse reads the value of a setting of this type."""
    parts = get_args(annotation)
    kind = parts[0] if type(None) in parts else annotation
    arguments = get_args(kind)
    if option.choices or get_origin(kind) is Literal:
        return {"choices": option.choices or arguments}
    if arguments == (Path, ...):
        return {"type": path, "action": "append"}
    if arguments:
        return {"type": numbers(arguments[0])}
    if kind is Path:
        return {"type": path}
    return {"type": count(int(option.limits[0])) if option.limits and kind is int else kind}


def _help(option: TrainOption, default: Any) -> str:
    shown = option.default_text or (f"{default:g}" if isinstance(default, (int, float)) else default)
    if not shown:
        return option.help
    return f"{option.help} (default: {shown})" if option.help else f"default: {shown}"


def run(args: TrainFlags) -> int:
    if args.background:
        from dflash_local.train.background import go_to_background

        go_to_background()
    settings = settings_of(args, _target(args.settings["model"]))
    if settings.mmproj:
        check_model_file(str(settings.mmproj), "--mmproj", DOWNLOAD)
    if args.plan:
        from dflash_local.train.estimate import estimate

        print(*estimate(settings), sep="\n")
        return 0
    from dflash_local.train.training import train

    watcher = Watcher() if args.quiet else _Terminal()
    try:
        with _terminated_as_interrupted():
            result = train(settings, watcher, args.restart)
    except KeyboardInterrupt:
        watcher.note("stopped; the same command goes on" + (", without --restart" if args.restart else ""))
        raise
    finally:
        if isinstance(watcher, _Terminal):
            watcher.close()
    print(*summary(result, settings), sep="\n", flush=True)  # it is there even if the report cannot be written
    if settings.report:
        from dflash_local.train.train_page import train_page

        write_text(settings.report, train_page(result, settings), "--report")
    return 0


def _target(given: Path) -> Path:
    """The file of -m: a path, or a model of another program by name. Raises RequestError and ModelError."""
    from dflash_local.cli.flags.named_models import model_named

    path = model.path if (model := model_named(given.as_posix())) else given
    check_model_file(str(path), "-m", DOWNLOAD)
    return path


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does: what was done is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def settings_of(args: TrainFlags, model: Path) -> TrainSettings:
    """Raises RequestError."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in args.settings.items()
        if value is not None
    }
    given["model"] = model
    output: Path = given["output"]
    if not output.name:  # as of . and /
        raise RequestError(f"-o {output} is a folder", param="-o", hint="name the file to write, such as NEW.gguf")
    given.setdefault("work", output.with_suffix(".train"))
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
    files = str(settings.merge) if settings.merge else f"{settings.model} -md {result.output}"
    files += f" -mm {settings.mmproj}" if settings.mmproj else ""
    lines.append(f"  next: dflash-local serve -m {files}")
    return lines


class _Terminal(Watcher):
    """Progress on stderr: one line that is rewritten on a terminal, elsewhere a line now and then."""

    _PERIOD = 15.0  # seconds between lines that stay

    def __init__(self, stream: Any = None) -> None:
        self._line = StatusLine(stream)
        self._began, self._first, self._last = 0.0, 0.0, 0.0
        self._ended = False

    def stage(self, name: str, text: str) -> None:
        self._began, self._first, self._last = time.monotonic(), -1.0, 0.0
        self._ended = False
        self._line.print(f"{name} ({STAGES.index(name) + 1} of {len(STAGES)}): {text}")

    def note(self, text: str) -> None:
        self._line.print(f"  {text}")

    def progress(self, done: float, total: float, text: str) -> None:
        now, share = time.monotonic(), done / total if total else 1.0
        if self._first < 0:
            self._first, self._began = share, now
        ends = share >= 1 and not self._ended
        if now - self._last < (0.1 if self._line.is_live else self._PERIOD) and not ends:
            return
        self._last, self._ended = now, share >= 1
        gained = share - self._first
        left = (now - self._began) * (1 - share) / gained if gained > 0 else 0.0
        bar = f"  [{'#' * int(20 * share):<20}]" if self._line.is_live else ""
        self._line.show(f"{bar}  {share:4.0%} {text}" + (f", {duration_text(left)} left" if left else ""))

    def close(self) -> None:
        self._line.close()
