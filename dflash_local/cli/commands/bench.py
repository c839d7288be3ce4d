"""`dflash-local bench`: measure the drafter on your own prompts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.baseline import UpstreamServer, check, parse
from dflash_local.bench import FORMATS, Results, measure
from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.command_line import CommandLine, shown_words
from dflash_local.cli.flags.engine_arguments import load_engine
from dflash_local.cli.flags.flag import Appended, Flags, add_flags, flag
from dflash_local.cli.flags.idle_flags import refuse_idle
from dflash_local.cli.flags.model_flags import ModelFlags, add_model_flags
from dflash_local.cli.flags.named_models import Models, take_models
from dflash_local.cli.flags.prompts import PromptFlags, prompts_of, steady_sampling
from dflash_local.cli.flags.sampling_flags import SamplingFlags
from dflash_local.cli.flags.values import count, write_text
from dflash_local.cli.terminal.bench_progress import watching
from dflash_local.cli.typed_path import is_file, is_folder
from dflash_local.engine_options import DEFAULTS, OPTIONS
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.engine import Engine
    from dflash_local.sampling import SamplingParams

# Options that are passed on to upstream's server if they differ from the default.
_SHARED = (
    "n_batch", "n_ubatch", "n_gpu_layers", "n_gpu_layers_draft", "main_gpu", "cache_type_k", "cache_type_v",
    "cache_type_k_draft", "cache_type_v_draft", "tensor_split", "split_mode", "swa_full", "chat_template", "device",
    "device_draft", "override_tensor", "override_tensor_draft", "cpu_moe", "n_cpu_moe", "kv_offload", "rpc",
)  # fmt: skip

_DESCRIPTION = (
    "Answers the prompts plain and drafted, in turns, and prints tokens per second, speed-up, "
    "acceptance length (AL: tokens after the first over target passes after the prompt's), acceptance by position, "
    "time to first token, and what the budget controller chose: nodes, block lengths, reasons, reuse of graphs, "
    "time per phase."
)


class BaselineFlags(
    Flags,
    title="baselines",
    text="Upstream's own llama-server answers the same prompts with the same target and flags, in turns with us. It is "
    "built once from the pinned source without our patches, as our own build is (cmake and a compiler are needed; "
    "DFLASH_PEER_BIN names a folder with a llama-server to use instead). The target is then in memory twice.",
):
    """Upstream's heads, measured beside our drafter."""

    baseline: tuple[str, ...] = flag(
        "--baseline",
        "none, dflash, dspark, eagle3 or mtp, with the head that it drafts with (default: the drafter for dflash "
        "and dspark, for mtp what our engine takes); may be given several times",
        action=Appended,
        metavar="KIND[=HEAD]",
    )
    baseline_lengths: list[int] = flag(
        "--baseline-draft",
        "its draft lengths (--spec-draft-n-max), each measured; the fastest counts (default: 3 7 15)",
        type=count(1),
        nargs="+",
        default=[3, 7, 15],
        metavar="N",
    )


class BenchFlags(ModelFlags, PromptFlags, BaselineFlags):
    line: CommandLine
    repeat: int = flag("--repeat", "repeats, plain and drafted in turns (default: 3)", type=count(1), default=3)
    format: str = flag("--format", "default: md", choices=FORMATS, default="md")
    output: Path | None = flag("-o --output", "write there instead of to the screen")
    report: Path | None = flag(
        "--report",
        "write a page with tables and plots there, too: one file that needs nothing else, to open or to mail",
        metavar="FILE.html",
    )
    record: Path | None = flag(
        "--from",
        "measure nothing: make the --report of what an earlier run wrote with --format json",
        metavar="FILE.json",
    )
    quiet: bool = flag("-q --quiet", "no progress bar (shown only on a terminal)")
    trace: Path | None = flag("--trace", "write every step of the drafted answers there, one JSON object a line")


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands, "bench", BenchFlags, run, "measure the drafter's speed-up on your prompts", _DESCRIPTION
    )
    add_flags(parser, PromptFlags, BaselineFlags)
    add_model_flags(parser)
    add_flags(parser, SamplingFlags)


def _upstream_program() -> Path:
    from dflash_local.build import peer

    return peer.build() / peer.PROGRAM


def _upstream_flags(args: BenchFlags, target: str, engine: Engine) -> list[str]:
    """The shared options as flags of upstream's server, which have the same names."""
    from dflash_local.machine.hardware import core_limit

    # As of our engine: without a number both leave it to the same function of llama.cpp.
    threads = args.n_threads or core_limit()
    flags = ["-m", target, "-c", str(engine.n_ctx_slot), "-fa", args.flash_attn]
    for name, n_threads in (("-t", threads), ("-tb", args.n_threads_batch or threads)):
        flags += [name, str(n_threads)] if n_threads else []
    for name in _SHARED:
        value, named = getattr(engine.options, name), OPTIONS[name].flag  # with what --fit has chosen
        if named is None or value == DEFAULTS.get(name):
            continue
        if isinstance(value, bool):
            flags.append((named.names if value else named.off_names)[0])
        else:
            flags += [named.names[0], str(value)]
    if args.load_mode != "auto":
        flags += ["--load-mode", args.load_mode]
    if args.chat_template_file:
        flags += ["--chat-template-file", str(args.chat_template_file)]
    return flags


def run(args: BenchFlags) -> int:
    if args.record:
        others = [name for name in args.typed if name not in ("record", "report", "quiet")]
        refuse_idle(args.typed, others, "--from measures nothing, and makes a --report alone")
        return _report_of(args.record, args.report)
    if not args.baseline:
        refuse_idle(args.typed, ["baseline_lengths"], "it is for --baseline")
    for path, flag_name in ((args.output, "-o"), (args.report, "--report"), (args.trace, "--trace")):
        _check_writable(path, flag_name)
    prompts, sampling = prompts_of(args), steady_sampling(args)
    models = take_models(args)
    results = _measure(args, models, prompts, sampling)
    results.environment.update(
        target_file=Path(models.target).name,
        drafter_file="" if results.environment["drafter"] == "none" else Path(models.drafter or "").name,
        command=_command(args.line.words),
    )
    text = FORMATS[args.format](results)
    try:
        if args.output:
            write_text(args.output, text, "-o")
        else:
            sys.stdout.write(text)
    except RequestError:  # the disk is full by now, and minutes were measured
        sys.stdout.write(text)
        raise
    if args.report:
        _write_report(results.to_json(), "the record", args.report)
    return 0


def _measure(args: BenchFlags, models: Models, prompts: Sequence[dict[str, Any]], sampling: SamplingParams) -> Results:
    drafter = Path(models.drafter) if models.drafter else None
    baselines = [one for text in args.baseline for one in parse(text, drafter, args.baseline_lengths)]
    for baseline in baselines:
        check(baseline, Path(models.target))
    program = _upstream_program() if baselines else Path()
    try:
        trace = args.trace.open("w", encoding="utf-8") if args.trace else None
    except OSError as error:
        raise RequestError(f"cannot write {args.trace}: {error.strerror}", param="--trace") from None
    with trace or nullcontext(), load_engine(args, models) as engine:
        flags = _upstream_flags(args, models.target, engine)
        n_ways = 1 + bool(engine.info["drafter"]) + len(baselines)
        with watching(n_ways * args.repeat * len(prompts), args.repeat, quiet=args.quiet) as watcher:
            return measure(
                engine,
                prompts,
                sampling,
                args.n_predict,
                args.repeat,
                args.budget,
                threads=args.n_threads,
                trace=trace,
                baselines=baselines,
                upstream=lambda baseline: UpstreamServer(program, baseline, flags),
                watcher=watcher,
            )


def _report_of(record: Path, report: Path | None) -> int:
    """The report of an earlier run."""
    if not report:
        raise RequestError("--from makes a report: say where with --report FILE.html", param="--report")
    try:
        data = record.read_bytes()
    except OSError as error:
        raise RequestError(f"cannot read {record}: {error.strerror}", param="--from") from None
    _write_report(data, str(record), report)
    return 0


def _write_report(data: str | bytes, source: str, path: Path) -> None:
    from dflash_local.report.bench_record import Record
    from dflash_local.report.report_page import report_page

    write_text(path, report_page(Record.parse(data, source)), "--report")
    print(f"the report is in {path}", file=sys.stderr)


def _check_writable(path: Path | None, flag: str) -> None:
    """Called before minutes of measuring. Raises RequestError."""
    if path is None:
        return
    folder = path.absolute().parent
    if is_folder(path) or not is_folder(folder):
        raise RequestError(
            f"cannot write {path}: {'it is a folder' if is_folder(path) else 'no such folder'}", param=flag
        )
    if not os.access(path if is_file(path) else folder, os.W_OK):
        raise RequestError(f"cannot write {path}: you may not", param=flag, hint=f"name another file: {flag} FILE")


def _command(arguments: Sequence[str]) -> str:
    """The command line as it was typed, without secrets."""
    return " ".join(["dflash-local bench", *shown_words(arguments)])
