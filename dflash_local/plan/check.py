"""The memory check of `Engine` before it loads: options that fit, or one sentence that says why none do."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dflash_local.engine_options import DEFAULTS, OPTIONS, EngineOptions
from dflash_local.errors import RequestError
from dflash_local.machine.hardware import GIB, free_memory, free_swap
from dflash_local.machine.model_size import model_size
from dflash_local.native import list_devices
from dflash_local.plan.fit import Fitted, fit
from dflash_local.plan.flags import changes, flags
from dflash_local.plan.memory_plan import COLUMNS, HOST, MemoryPlan
from dflash_local.words import MIB, memory_text

log = logging.getLogger("dflash_local.engine")

# Upper bound for K and V of one token in f16, in bytes. If even that fits, no dry run is needed.
_TOKEN_AT_MOST = 3 << 20
_LEAST, _LEAST_OF_SLOT = 256, 8  # tokens of the smallest context in a hint; of a slot: target/context_size.cpp
_WIDE = ("f32", "f16", "bf16")  # K/V types that q8_0 is smaller than


def fitted(options: EngineOptions) -> EngineOptions:
    """The options completed by --fit; logs its choices in one line.

    Raises:
        RequestError: they cannot fit; the message says what is missing where, the hint what would help.
        ModelError, PairError: as `Engine` would.
    """
    if not options.fit or options.split_mode in ("row", "tensor"):
        return options
    if not _uses_devices(options):
        _check_host(options)
        return options
    result = fit(options)
    if not result.plan.devices and result.options == options:
        return options
    _check_devices(options, result)
    _refuse_host(result.plan)
    chosen = changes(options, result.options)
    log.info("fit: %s; %s", flags(result.options) if chosen else "no changes", summary(result))
    if why := unused(result):
        log.warning("fit: %s", why)
    return replace(options, **chosen) if chosen else options


def summary(result: Fitted) -> str:
    """Memory of each device, in words."""
    parts = [f"{d.name} {memory_text(result.plan.need(d.name))} of {memory_text(d.free)}" for d in result.plan.devices]
    return ", ".join([f"context {result.plan.n_ctx}", *parts])


def shortage(plan: MemoryPlan, margins: Mapping[str, int]) -> str | None:
    """One sentence about the device that lacks most memory, if any."""
    lacks = {name: -left for name, left in plan.headroom(margins).items() if left < 0}
    if not lacks:
        return None
    name = max(lacks, key=lambda name: lacks[name])
    free = next(device.free for device in plan.devices if device.name == name) - margins.get(name, 0)
    return f"{name} has {memory_text(free)} free, and needs {_parts_of(plan, name)}"


def unused(result: Fitted) -> str | None:
    """If there are devices but none holds weights: two sentences about why, and what would change that."""
    if result.given_up is None:
        return None
    plan = result.given_up
    left = plan.headroom(result.margins)
    name = min(left, key=lambda name: left[name])
    free = next(device.free for device in plan.devices if device.name == name)
    kept, spare = result.margins[name], min(plan.headroom({}).values())
    advice = f"-fitt {spare // MIB} would do" if spare >= MIB else "take a smaller quantization"
    return (
        f"no device holds weights: {name} has {memory_text(free)}, of which --fit-target keeps {memory_text(kept)} "
        f"free, and all of the model with {plan.n_ctx} tokens would take {_parts_of(plan, name)} there. To use it: "
        f"{advice}"
    )


def _parts_of(plan: MemoryPlan, device: str) -> str:
    sizes = {name: plan.column(device, name) for name in COLUMNS}
    listed = ", ".join(f"{name} {memory_text(size)}" for name, size in sizes.items() if size)
    return f"{memory_text(plan.need(device))} ({listed})"


def _uses_devices(options: EngineOptions) -> bool:
    return bool(options.rpc) or (options.device != "none" and options.n_gpu_layers != 0 and bool(list_devices()))


def _check_devices(options: EngineOptions, result: Fitted) -> None:
    """Margins may be missed, but memory must suffice."""
    if os.environ.get("GGML_CUDA_ENABLE_UNIFIED_MEMORY"):  # the rest goes to the host
        return
    if why := shortage(result.plan, {}):
        raise RequestError(f"{_field(options)} cannot fit: {why}", param=_field(options), hint=hint(options))


def _field(options: EngineOptions) -> str:
    return next(
        (name for name in ("n_ctx", "n_gpu_layers", "tensor_split") if getattr(options, name) != DEFAULTS[name]),
        "model",
    )


def hint(options: EngineOptions, devices: Mapping[str, int] | None = None) -> str:
    """Advice: flags that would fit."""
    if options.n_ctx:
        smaller = fit(replace(options, n_ctx=0), devices)
        if smaller.fits:
            return f"{flags(replace(smaller.options, n_ctx=smaller.plan.n_ctx))} fits"
    given = [
        flag.names[0]
        for name in ("n_gpu_layers", "tensor_split", "override_tensor", "n_cpu_moe", "cpu_moe")
        if getattr(options, name) != DEFAULTS[name] and (flag := OPTIONS[name].flag)
    ]
    return f"leave out {' and '.join(given)}" if given else "take a smaller quantization, or fewer slots (-np)"


# ---- the host ----


def _check_host(options: EngineOptions) -> None:
    """Not needed for mapped files without --ctx-size: then the engine takes the context that fits."""
    room = _host_room(options)
    if (options.n_ctx == 0 and options.mmap) or not room:
        return
    if options.n_ctx * _TOKEN_AT_MOST + 2 * GIB + _read_weights(options) < room:
        return
    _refuse_host(MemoryPlan.of(options))


def _read_weights(options: EngineOptions) -> int:
    """Bytes of weights that are read into memory, not mapped."""
    files = [path for path in (options.model, options.drafter) if path is not None and not options.mmap]
    return sum(model_size(Path(path)) for path in files)


def _host_room(options: EngineOptions) -> int:
    """Bytes of free memory and swap of the host, 0: unknown. Of a given host no swap is known."""
    if options.host_memory:
        return options.host_memory
    free = free_memory()
    return free + free_swap() if free else 0


def _refuse_host(plan: MemoryPlan) -> None:
    if why := host_shortage(plan):
        field = "n_ctx" if plan.options.n_ctx else "model"
        raise RequestError(f"n_ctx {plan.n_ctx} cannot fit: {why}", param=field, hint=host_hint(plan))


def host_shortage(plan: MemoryPlan) -> str | None:
    """One sentence if the host lacks memory. Only for the impossible: weights of mapped files do not count, because the
    system can drop them."""
    room = _host_room(plan.options)
    if not room or plan.host_need <= room:
        return None
    return f"the host has {memory_text(room)} of memory, and needs {_parts_of(plan, HOST)}"


def host_hint(plan: MemoryPlan, devices: Mapping[str, int] | None = None) -> str:
    """Advice: a context that the host has room for, or what else would take less."""
    options, n_ctx = plan.options, _host_context(plan, devices)
    if not n_ctx:
        others = ["leave out --no-mmap"] * (not options.mmap) + ["take fewer slots (-np)"] * (options.n_slots != 1)
        return ", or ".join([*others, "take a smaller -ub"])
    types = {"-ctk": options.cache_type_k, "-ctv": options.cache_type_v}
    wide = " ".join(f"{flag} q8_0" for flag, kind in types.items() if kind in _WIDE)
    return f"-c {n_ctx} fits" + (f"; {wide} takes less for each token" if wide else "")


def _host_context(plan: MemoryPlan, devices: Mapping[str, int] | None) -> int:
    """A number of tokens that fit, almost the largest; 0: there is none."""
    room = _host_room(plan.options)
    n_least = -(-max(_LEAST, _LEAST_OF_SLOT * plan.options.n_slots) // _LEAST) * _LEAST
    least = MemoryPlan.of(replace(plan.options, n_ctx=n_least), devices)
    if least.host_need > room:
        return 0
    while plan.host_need > room and plan.n_ctx > least.n_ctx:
        share = (room - least.host_need) / (plan.host_need - least.host_need)
        n_ctx = least.n_ctx + int(0.95 * share * (plan.n_ctx - least.n_ctx)) // least.n_ctx * least.n_ctx
        plan = MemoryPlan.of(replace(plan.options, n_ctx=n_ctx), devices)
    return plan.n_ctx
