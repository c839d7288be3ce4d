"""A plan in the terminal: its table, and what to run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dflash_local.machine.hardware import GIB
from dflash_local.words import memory_text

if TYPE_CHECKING:
    from dflash_local.plan.fit import Fitted


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


def advice(fitted: Fitted, named: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    """Lines with the context and the command to run: the words that have `named` the models come first in it, those of
    flags to be `kept` last."""
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
    yield " ".join(("dflash-local serve", shlex.join(named), flags(plan.options), *map(shlex.quote, kept)))


def slot_table(slots: Mapping[str, Any]) -> Iterator[str]:
    """Lines about slots."""
    yield "slots with separate contexts: the most tokens of each"
    for n, n_ctx in slots["context_of_each"].items():
        yield f"  {n}: {n_ctx or 'does not fit'}"
    yield "one more slot takes"
    for name, size in slots["costs"].items():
        yield f"  {name}: {size / 2**20:.1f} MiB" if size < GIB else f"  {name}: {memory_text(size)}"
