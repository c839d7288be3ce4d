"""What slows this machine down, and what of its measurements is kept from earlier starts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from dflash_local.diagnose.finding import Finding, ok, warn
from dflash_local.engine_options import EngineOptions
from dflash_local.machine import costs, kept_acceptance, tuning
from dflash_local.machine.hardware import Machine, core_limit

_POOR = 1.3  # tokens a pass


def look_at_machine(machine: Machine, n_threads: int = 0) -> Iterator[Finding]:
    """The computer, and whether other programs keep it busy."""
    if machine.load > machine.cores:
        advice = "stop other programs: drafting needs idle cores"
        yield warn("machine", f"{machine}; load {machine.load:.1f}", advice)
    else:
        yield ok("machine", str(machine))
    cores = min(core_limit() or machine.cores, machine.cores)
    if cores < machine.cores:
        yield ok("threads", f"{cores} of {machine.cores} physical cores may be used (affinity, or a container's quota)")
    if n_threads > cores:
        advice = f"use -t {cores}: more threads wait for each other"
        yield warn("threads", f"-t {n_threads} on {cores} physical core{'s' * (cores > 1)}", advice)


def look_at_tuning(info: dict[str, Any]) -> Iterator[Finding]:
    """Were the row counts measured here? No finding if no device has two kernels and nothing is kept."""
    kept, ignored = tuning.read_counts()
    if ignored:
        yield warn("tuned rows", f"{ignored}: ignored", "measure again: dflash-local doctor --tune")
    elif kept.matrix or kept.few:
        parts = [_told(kept.matrix, ""), _told(kept.few, "our kernel ")]
        yield ok("tuned rows", f"{'; '.join(filter(None, parts))}; kept in {tuning.tuned_file()}")
    elif two := [device["name"] for device in info["devices"] if tuning.choices(device["name"])]:
        yield ok("tuned rows", f"the defaults of {', '.join(two)}; dflash-local doctor --tune measures them here")


def _told(table: tuning.Table, kernel: str) -> str:
    return "; ".join(
        f"{device} {kernel}{', '.join(f'{t} from {n}' for t, n in types.items())}" for device, types in table.items()
    )


def look_at_costs(options: EngineOptions) -> Finding:
    """Are the pass times of this pair, with these options, kept from an earlier start? They matter only with a
    drafter."""
    if not options.cost_cache or not options.warmup:
        return ok("pass times", "measured at every start" if options.warmup else "not measured (--no-warmup)")
    file = costs.cost_file(options.model, options.drafter, vars(options))
    try:
        age = time.time() - file.stat().st_mtime
    except OSError:
        if costs.usable(file) is None:
            return warn(
                "pass times",
                f"{file.parent} cannot be written: every start measures again",
                "point DFLASH_CACHE elsewhere",
            )
        return ok("pass times", f"not measured yet; the first start will keep them in {file}")
    return ok("pass times", f"kept {_ago(age)} ago in {file}")


def look_at_acceptance(options: EngineOptions) -> Iterator[Finding]:
    """What the drafts of this pair brought when it last ran with these options. No finding if that is not known."""
    if not options.cost_cache:
        return
    kept = kept_acceptance.read(costs.cost_file(options.model, options.drafter, vars(options)))
    if kept is None:
        return
    text = f"{kept.length:.2f} tokens a pass, over the {kept.passes} passes of the last run"
    if kept.length >= _POOR:
        yield ok("acceptance", text)
    else:
        yield warn(
            "acceptance",
            f"{text}: this drafter guesses little of your texts, or its passes cost too much here",
            "adapt it to this file and your prompts: dflash-local train --init (docs/training.md)",
        )


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}{'s' * (seconds >= 2 * size)}"
    return "less than a minute"
