"""`dflash-local plan`: a pair's memory before it is loaded, the largest context that fits, and the flags for it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.engine_arguments import engine_options
from dflash_local.cli.flags.flag import declared, flag
from dflash_local.cli.flags.model_flags import HubFlags, HubModelFlags, ModelFlags, add_model_flags
from dflash_local.cli.flags.named_models import Models, models_to_plan, suggest
from dflash_local.cli.terminal.plan_lines import advice, slot_table, table
from dflash_local.words import file_size_text

if TYPE_CHECKING:
    from dflash_local.engine_options import EngineOptions
    from dflash_local.plan.fit import Fitted

_DESCRIPTION = (
    "Says what a pair would take on each device (weights, KV, tapes, drafter, taps, projector, buffers), the "
    "largest context that fits, and the flags for it. Nothing is loaded, and of models named by -hf or -hfd little "
    "more than headers is downloaded. Given flags stay; with --fit off all others stay, too."
)
_UNITS = {"": 2**30, "G": 2**30, "GIB": 2**30, "GB": 10**9, "M": 2**20, "MIB": 2**20, "MB": 10**6}


def _size(text: str) -> int:
    digits = text.rstrip("GMIBgmib")
    unit = text[len(digits) :].upper()
    try:
        size = int(float(digits) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if not 0 < size < 2**50:
        raise argparse.ArgumentTypeError(f"must be a size such as 24G or 512M, got {text!r}")
    return size


def _devices(text: str) -> dict[str, int]:
    devices: dict[str, int] = {}
    for i, part in enumerate(text.split(",")):
        name, _, size = part.rpartition("=")
        name = name or f"CUDA{i}"
        if name in devices or name == "CPU":
            raise argparse.ArgumentTypeError(f"names {name} twice, or the CPU: got {text!r}")
        devices[name] = _size(size)
    return devices


class PlanFlags(ModelFlags):
    vram: dict[str, int] | None = flag(
        "--vram",
        "devices of another machine instead of this one's: their memory, or NAME=24G; sized as CUDA's",
        type=_devices,
        metavar="24G,24G",
    )
    ram: int | None = flag("--ram", "memory of its host (default: what is free here)", type=_size, metavar="64G")
    by_slots: bool = flag("--by-slots", "also the largest context for 1, 2, 4 and 8 slots, and what a slot costs")
    json: bool = flag("--json", "print JSON")


# Flags that are not for `serve`, or that say which files to take: it gets the files themselves, or their names, with
# which the last ones stay.
_LEFT_OUT = {"model", "drafter", "mmproj", *declared(PlanFlags), *declared(HubFlags), *declared(HubModelFlags)}
_OF_NAMES = {"offline", "mmproj_auto"}


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "plan",
        PlanFlags,
        run,
        "show a pair's memory on each device before loading, and the flags for it",
        _DESCRIPTION,
    )
    add_model_flags(parser, defaults={"n_slots": -1})


def run(args: PlanFlags) -> int:
    with models_to_plan(args) as (models, missing):
        return _plan(args, models, sum(file.size or 0 for file in missing))


def _plan(args: PlanFlags, models: Models, n_missing: int) -> int:
    """Plan these models, of which `n_missing` bytes are not here yet."""
    from dflash_local.diagnose.projector import check_options
    from dflash_local.engine_options import EngineOptions
    from dflash_local.plan.check import hint, host_hint, host_shortage, shortage, unused
    from dflash_local.plan.plan_record import record
    from dflash_local.plan.slot_costs import by_slots

    options = EngineOptions(**engine_options(args, models))
    check_options(options)
    if args.ram:
        options = replace(options, host_memory=args.ram)
    fitted = _fitted(options, args.vram)
    on_device = shortage(fitted.plan, {})
    lack = on_device or host_shortage(fitted.plan)
    slots = by_slots(options, args.vram) if args.by_slots else None
    given = _given(args, models, fitted.options)
    if args.json:
        found = record(fitted) | ({"slots": slots} if slots else {}) | {"shortage": lack, "unused": unused(fitted)}
        found["fits"] = found["fits"] and not lack
        found["flags"] += given
        print(json.dumps(found | {"download": n_missing}, indent=1))
    else:
        print(*table(fitted), "", sep="\n")
        if n_missing:
            print(f"to download: {file_size_text(n_missing)}")
        print(*advice(fitted, _named(models, fitted.options), given), sep="\n")
        if slots:
            print("", *slot_table(slots), sep="\n")
        if lack:
            fix = hint(options, args.vram) if on_device else host_hint(fitted.plan, args.vram)
            print(f"\nit does not fit: {lack}\n  fix: {fix}")
    suggest(models)
    return 1 if lack else 0


def _named(models: Models, options: EngineOptions) -> list[str]:
    """The words that name the models to `serve`: files, and names of the Hub, whose files may have been headers."""
    files = {
        "target": ("-m", options.model), "drafter": ("-md", options.drafter), "projector": ("--mmproj", options.mmproj)
    }  # fmt: skip
    words = {name: (flag, str(path)) for name, (flag, path) in files.items() if path} | dict(models.remote)
    return [word for name in files for word in words.get(name, ())]


def _given(args: PlanFlags, models: Models, options: EngineOptions) -> list[str]:
    """The typed words that stay."""
    from dflash_local.plan.flags import kept

    left_out = _LEFT_OUT - _OF_NAMES if models.remote else _LEFT_OUT
    return kept(options, {place: words for place, words in args.typed.items() if place not in left_out})


def _fitted(options: EngineOptions, devices: dict[str, int] | None) -> Fitted:
    """What --fit chooses on these devices, or, without it, what the options say."""
    from dflash_local.plan.fit import Fitted, fit, margins_of
    from dflash_local.plan.memory_plan import MemoryPlan

    if options.fit:
        return fit(options, devices)
    plan = MemoryPlan.of(options, devices)
    return Fitted(plan, margins_of(options.fit_targets, plan.devices))
