"""`dflash-local doctor`: is everything ready for fast answers, and does a given pair fit together and this machine?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.engine_arguments import engine_options
from dflash_local.cli.flags.flag import Flags, add_flags, flag
from dflash_local.cli.flags.idle_flags import refuse_idle
from dflash_local.cli.flags.model_flags import ModelFlags, add_model_flags
from dflash_local.cli.flags.named_models import models_to_plan, suggest
from dflash_local.cli.flags.values import write_text
from dflash_local.diagnose.finding import Finding, Level, fail, ok, warn, worst
from dflash_local.diagnose.machine_findings import look_at_machine, look_at_tuning
from dflash_local.machine.hardware import Machine, this_machine
from dflash_local.words import file_size_text

REPORT = "dflash-local-report.md"
# Types to tune by default: those of most models.
TYPES = ("q4_0", "q4_K", "q5_K", "q6_K", "q8_0")

_DESCRIPTION = (
    "Checks the native library, the devices that it really loaded and this machine; with -m and -md "
    "also whether the two models fit each other and what memory they need. Exits with 1 if anything FAILs."
)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


class TuneFlags(Flags, title="tuning"):
    """What is measured of a device's kernels."""

    tune: bool = flag(
        "--tune",
        "measure the number of rows from which a device's matrix kernel beats its vector kernel, and keep it; "
        "--device names the device, CPU too (the first that has both kernels)",
    )
    types: list[str] | None = flag(
        "--types", f"quantized types (those that have both of {','.join(TYPES)})", type=_names, metavar="TYPE,..."
    )
    shape: list[str] = flag(
        "--shape", "shapes of the matrices (8b)", type=_names, default=["8b"], metavar="8b|27b|MxK,..."
    )


class DoctorFlags(ModelFlags, TuneFlags):
    json: str | None = flag(
        "--json", "print the findings as JSON, or write them to FILE", nargs="?", const="-", metavar="FILE"
    )
    report: str | None = flag(
        "--report",
        f"write a file for a bug report ({REPORT}): the findings, versions, settings, the end of the build's log; "
        "without keys, tokens, the home folder and prompts",
        nargs="?",
        const=REPORT,
        metavar="FILE",
    )


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "doctor",
        DoctorFlags,
        run,
        "check the build, the devices and a pair; one line of advice per finding",
        _DESCRIPTION,
    )
    add_flags(parser, TuneFlags)
    add_model_flags(parser)


def run(args: DoctorFlags) -> int:
    if args.tune:
        others = ("model", "drafter", "hf_repo", "hf_repo_draft", "report")
        refuse_idle(args.typed, others, "--tune measures a device's kernels alone")
        return tune(args)
    refuse_idle(args.typed, ("types", "shape"), "it is for --tune")
    from dflash_local.diagnose.build import look_at_build, look_at_library
    from dflash_local.diagnose.models import look_at_models
    from dflash_local.engine_options import EngineOptions

    machine = this_machine()
    info: dict[str, Any] = {}
    findings = [*look_at_machine(machine, args.n_threads or 0), *look_at_build(), *look_at_library(info)]
    if info:
        findings += look_at_tuning(info)
    if args.model or args.hf_repo:
        with models_to_plan(args, must_exist=False) as (models, missing):  # a file that is missing is a finding
            if missing:
                size = file_size_text(sum(file.size or 0 for file in missing))
                findings.append(ok("download", f"{size} are not here yet; their headers were read"))
            options = EngineOptions(**engine_options(args, models))
            findings += look_at_models(options, machine, info, is_here=not missing)
            suggest(models)
    elif args.drafter or args.hf_repo_draft:
        findings.append(fail("models", "a drafter cannot be checked alone", "give the target too: -m TARGET.gguf"))
    _report(args.json, findings, machine, library=info)
    if args.report:
        from dflash_local.diagnose.report import report

        write_text(Path(args.report), report(findings, machine, info), "--report")
        print(f"written: {args.report}; read it before you send it", file=sys.stderr)
    return 1 if worst(findings) is Level.FAIL else 0


def _report(file: str | None, findings: Sequence[Finding], machine: Machine, **more: Any) -> None:
    """Print the findings as lines, or write them with everything else as JSON to `file` ("-": print)."""
    from dflash_local.build.commit import running_commit
    from dflash_local.machine.identity import build_key

    origin = {"machine": machine.to_json(), "commit": running_commit(), "build": build_key()}
    text = json.dumps({**origin, **more, "findings": [f.to_json() for f in findings]}, indent=1)
    if file and file != "-":
        write_text(Path(file), text + "\n", "--json")
    print(text if file == "-" else "\n".join(map(str, findings)))


def tune(args: DoctorFlags) -> int:
    """Measure the number of rows from which a device's matrix kernel beats its vector kernel, print the times, and keep
    the counts for later starts."""
    from dflash_local.diagnose.build import look_at_library
    from dflash_local.machine import tuning

    machine = this_machine()
    info: dict[str, Any] = {}
    findings = [*look_at_machine(machine), *look_at_library(info)]
    runs: list[dict[str, Any]] = []
    if info:
        tuning.apply()
        findings += _tune(args, info, runs)
    _report(args.json, findings, machine, library=info, runs=runs)
    return 1 if worst(findings) is Level.FAIL else 0


def _tune(args: DoctorFlags, info: dict[str, Any], runs: list[dict[str, Any]]) -> Iterator[Finding]:
    """A finding for each type; the times are appended to `runs`."""
    from dflash_local.machine import tuning

    device, types = _tunable(args, info)
    for missing in [name for name in args.types or () if name not in types]:
        yield warn("tuned rows", f"{device} has one kernel only for {missing}", "leave it out of --types")
    if not types:
        advice = "see docs/doctor.md for the devices and types that have two kernels"
        yield fail("tuned rows", f"{device} has nothing to choose", advice)
        return

    def show_run(run: dict[str, Any]) -> None:
        runs.append(run)
        if args.json != "-":
            print(*_time_table(run), "", sep="\n", flush=True)

    rows: tuning.Table = {device: {}}
    few: tuning.Table = {}
    for tuned in tuning.tune(device, types, args.shape, args.n_threads or 0, _show_progress, show_run):
        rows[device][tuned.type] = tuned.rows
        crossovers = ", ".join(f"{run['shape']}: {run['measured']}" for run in tuned.runs)
        change = f"matrix kernel from {tuned.runs[0]['now']} rows on -> from {tuned.rows} ({crossovers})"
        yield ok("tuned rows", f"{device} {tuned.type}: {change}")
        if tuned.few_rows is not None:
            few.setdefault(device, {})[tuned.type] = tuned.few_rows
            yield ok("tuned rows", f"{device} {tuned.type}: our kernel {_from(tuned.few_rows)}")
    try:
        yield ok("tuned rows", f"kept in {tuning.keep(rows, few)}")
    except OSError as error:
        yield warn("tuned rows", f"could not be kept: {error}", "point DFLASH_CACHE elsewhere")


def _tunable(args: DoctorFlags, info: dict[str, Any]) -> tuple[str, Sequence[str]]:
    """The device to tune, --device or the first that has two kernels, GPUs before the CPU; and those of its types."""
    from dflash_local.machine import tuning

    devices = sorted(info["devices"], key=lambda device: device["type"] == "cpu")
    names = [args.device] if args.device else [device["name"] for device in devices]
    found = ((name, tuning.choices(name, args.types or TYPES)) for name in names)
    return next(((name, types) for name, types in found if types), (names[0], []))


def _from(rows: int) -> str:
    from dflash_local.machine import tuning

    return f"from {rows} rows on" if rows < tuning.MOST_ROWS else "not at all: it is slower, or wrong"


def _show_progress(what: str, done: float) -> None:
    """A progress line of a measurement, on terminals only."""
    if sys.stderr.isatty():
        line = f"\r{what}: {done:4.0%}"
        print(line, end="" if done < 1 else f"\r{'':{len(line)}}\r", file=sys.stderr, flush=True)


def _time_table(run: dict[str, Any]) -> Iterator[str]:
    kernel = f"matrix kernel from {run['now']} rows on -> from {run['measured']}"
    yield f"{run['type']}, {run['shape']}, {run['device']}: {kernel}"
    kernels = [name for name in ("vector", "matrix", "few") if any(run[f"{name}_ms"])]
    yield f"{'rows':>6}" + "".join(f"{f'{name} ms':>12}" for name in kernels)
    listed_rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 40, 48, 56, 64, run["now"], run["measured"]}
    for n, times in enumerate(zip(*(run[f"{name}_ms"] for name in kernels), strict=True), 1):
        if n in listed_rows:
            yield f"{n:>6}" + "".join("           -" if ms is None else f"{ms:>12.3f}" for ms in times)
