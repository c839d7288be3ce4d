"""`dflash-local plan`: a pair's memory before it is loaded, the largest context that fits, and the flags for it."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.engine_arguments import engine_options
from dflash_local.cli.flags.flag import flag
from dflash_local.cli.flags.model_flags import ModelFlags, add_model_flags, suggest, take_models
from dflash_local.cli.usage import Commands, add_command
from dflash_local.machine.hardware import GIB
from dflash_local.words import memory_text

if TYPE_CHECKING:
    from dflash_local.engine_options import EngineOptions
    from dflash_local.plan.fit import Fitted

SLOTS = (1, 2, 4, 8)

_DESCRIPTION = (
    "Says what a pair would take on each device (weights, KV, tapes, drafter, taps, projector, buffers), the "
    "largest context that fits, and the flags for it. Nothing is loaded. Given flags stay; with --fit off "
    "all others stay, too."
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
    from dflash_local.diagnose.projector import check_options
    from dflash_local.engine_options import EngineOptions
    from dflash_local.plan.check import hint, shortage, unused
    from dflash_local.plan.fit import Fitted, fit, margins_of
    from dflash_local.plan.memory_plan import MemoryPlan

    models = take_models(args)
    options = EngineOptions(**engine_options(args, models))
    check_options(options)
    if args.ram:
        options = replace(options, host_memory=args.ram)
    if options.fit:
        fitted = fit(options, args.vram)
    else:
        plan = MemoryPlan.of(options, args.vram)
        fitted = Fitted(plan, margins_of(options.fit_targets, plan.devices))
    lack = shortage(fitted.plan, {})
    slots = by_slots(options, args.vram) if args.by_slots else None
    if args.json:
        found = record(fitted) | ({"slots": slots} if slots else {}) | {"shortage": lack, "unused": unused(fitted)}
        print(json.dumps(found, indent=1))
    else:
        print(*table(fitted), "", sep="\n")
        print(*advice(fitted), sep="\n")
        if slots:
            print("", *slot_table(slots), sep="\n")
        if lack:
            print(f"\nit does not fit: {lack}\n  fix: {hint(options, args.vram)}")
    suggest(models)
    return 1 if lack else 0


def by_slots(options: EngineOptions, devices: Mapping[str, int] | None) -> dict[str, Any]:
    """The largest context of each slot for some numbers of slots, and the memory of one more slot."""
    from dflash_local.plan.fit import fit
    from dflash_local.plan.slot_costs import slot_costs

    contexts = {}
    for n in SLOTS:
        fitted = fit(replace(options, n_slots=n, n_ctx=0, share_ctx=False), devices)
        contexts[n] = fitted.plan.facts["n_ctx_slot"] if fitted.fits else 0
    return {"context_of_each": contexts, "costs": slot_costs(options, devices)}


def record(fitted: Fitted) -> dict[str, Any]:
    """A plan as JSON."""
    from dflash_local.plan.flags import flags

    plan = fitted.plan
    return {
        "fits": fitted.fits,
        "flags": shlex.split(flags(plan.options)),
        "n_ctx": plan.n_ctx,
        "n_ctx_slot": plan.facts["n_ctx_slot"],
        "n_slots": plan.options.n_slots,
        "devices": [
            {"name": d.name, "free": d.free, "need": plan.need(d.name), "margin": fitted.margins.get(d.name, 0)}
            for d in fitted.devices
        ],
        "placement": plan.placement,
    }


def table(fitted: Fitted) -> Iterator[str]:
    """Lines of a table: a row for each device, a column for each kind of memory."""
    from dflash_local.plan.memory_plan import COLUMNS, HOST

    plan = fitted.plan
    columns = [name for name in COLUMNS if any(plan.column(device, name) for device in plan.placement)]
    rows = [["", *columns, "total", "free"]]
    free = {device.name: device.free for device in fitted.devices}
    for device in [*free, HOST]:
        sizes = [plan.column(device, name) for name in columns]
        left = memory_text(free[device]) if free.get(device) else ""
        rows.append([device, *(memory_text(size) if size else "-" for size in sizes), memory_text(sum(sizes)), left])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])


def advice(fitted: Fitted) -> Iterator[str]:
    """Lines with the context and the command to run."""
    from dflash_local.plan.check import unused
    from dflash_local.plan.flags import flags

    plan = fitted.plan
    n_slots, n_ctx, each = plan.options.n_slots, plan.n_ctx, plan.facts["n_ctx_slot"]
    shared = f"{n_slots} slots share it" if plan.options.share_ctx else f"{n_slots} slots of {each}"
    yield f"context: {n_ctx} tokens" + (f", {shared}" if n_slots > 1 else "")
    if plan.devices:
        keeps = ", ".join(
            f"{name} {memory_text(size)} (at least {memory_text(fitted.margins[name])}: --fit-target)"
            for name, size in plan.headroom({}).items()
        )
        yield f"left free: {keeps}"
    if why := unused(fitted):
        yield why
    files = {"-m": plan.options.model, "-md": plan.options.drafter, "--mmproj": plan.options.mmproj}
    models = [word for flag, path in files.items() if path for word in (flag, str(path))]
    yield f"dflash-local serve {shlex.join(models)} {flags(plan.options)}"


def slot_table(slots: Mapping[str, Any]) -> Iterator[str]:
    """Lines about slots."""
    yield "slots with separate contexts: the most tokens of each"
    for n, n_ctx in slots["context_of_each"].items():
        yield f"  {n}: {n_ctx or 'does not fit'}"
    yield "one more slot takes"
    for name, size in slots["costs"].items():
        yield f"  {name}: {size / 2**20:.1f} MiB" if size < GIB else f"  {name}: {memory_text(size)}"
