"""The machine report: what the engine, the library and the system know about the machine, as /machine answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import PurePath
from typing import Any, cast, get_args

from dflash_local import native, roofline
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError
from dflash_local.machine import tuning
from dflash_local.machine.devices import gpus
from dflash_local.machine.hardware import free_memory, load_average, process_memory, this_machine
from dflash_local.plan.memory_plan import HOST
from dflash_local.running_request import SlotUse
from dflash_local.server.settings import Settings
from dflash_local.server.shapes import machine_report as shapes
from dflash_local.server.shapes.answer import pick
from dflash_local.stats import EngineStats
from dflash_local.throughput import SECONDS

# Finding out takes a while on a machine with many cores, and the answer does not change.
_this_machine = cache(this_machine)
PARTS: tuple[shapes.Part, ...] = get_args(shapes.Part)
_OWN_LAYERS = {"mtp": "MTP layers"}  # names of what drafts without a file of its own, by its kind


def machine(
    engine: Engine, settings: Settings, stats: Mapping[str, Any], state: shapes.MachineState, since: int
) -> shapes.Machine:
    """`/machine`; `stats` are dflash_engine_stats, `since` is the first second of throughput to report. It asks drivers
    and the system, so call it off the event loop."""
    info, counted, library = engine.info, settings.metrics_endpoint, _library()
    phases = EngineStats.of(stats).phase_ms
    return {
        "state": state,
        "pair": _pair(engine, settings),
        "computer": computer(),
        "devices": library["devices"],
        "placement": _placement(engine, library),
        "context": {
            "n_ctx": info.get("n_ctx", engine.n_ctx_slot),
            "n_ctx_slot": engine.n_ctx_slot,
            "shared": bool(info.get("ctx_shared")),
        },
        "memory": _memory(engine, stats),
        "costs": _costs(stats),
        "roofline": _roofline(stats, info["target"]["size"]),
        "kernels": _kernels(engine, library),
        "choices": _choices(stats) if counted else None,
        "phases": dict(phases) if counted and phases else None,
        "totals": _totals(engine) if counted else None,
        "slots": [_slot(engine, *one) for one in enumerate(engine.slot_uses())] if settings.slots_endpoint else None,
        "throughput": _throughput(engine, since) if counted else None,
    }


def computer() -> shapes.Computer:
    """The computer, as the system describes it."""
    return pick(
        shapes.Computer, {**_this_machine().to_json(), "memory_available": free_memory(), "load": load_average()}
    )


def _library() -> dict[str, Any]:
    """What the library reports of the devices, which may have gone."""
    try:
        return native.library_info()
    except DFlashError:
        return {"devices": []}


def _pair(engine: Engine, settings: Settings) -> shapes.MachinePair:
    info, options = engine.info, engine.options
    drafter = info.get("drafter")
    file = options.drafter if options is not None and options.drafter is not None else ""
    name = PurePath(file).name or (drafter and _OWN_LAYERS.get(drafter["kind"], drafter["kind"]))
    return {
        "target": pick(shapes.MachineModel, {**info["target"], "name": settings.alias}),
        "drafter": drafter and pick(shapes.MachineDrafter, {**drafter, "name": name}),
        "no_tree": info.get("no_tree", ""),
        "not_bit_exact": info.get("not_bit_exact", ""),
    }


def _placement(engine: Engine, library: dict[str, Any]) -> shapes.Placement:
    options, has_gpu = engine.options, bool(gpus(library))
    return {
        "n_threads": options.n_threads if options else None,
        "n_gpu_layers": options.n_gpu_layers if options and has_gpu else None,
        "n_gpu_layers_draft": options.n_gpu_layers_draft if options and has_gpu else None,
    }


def _memory(engine: Engine, stats: Mapping[str, Any]) -> shapes.Memory:
    sizes, kept = engine.info.get("memory", {}), stats.get("host_cache")
    placed = engine.info.get("placement", {})
    parts = {**sizes, "host_cache": kept["bytes"] if kept else 0}
    return {
        "parts": [{"part": name, "bytes": parts[name], "on": _on(name, placed)} for name in PARTS if parts.get(name)],
        "process": pick(shapes.ProcessBytes, asdict(process_memory())),
        "cells": stats.get("cells"),
        "host_cache": kept,
        **pick(shapes.SlotMemory, sizes),
    }


def _on(part: shapes.Part, placed: Mapping[str, Mapping[str, int]]) -> shapes.Place:
    """Where a part is, by the bytes of each device. What the library tells nothing of is in host memory."""
    devices = {device for device, sizes in placed.items() if sizes.get(part)}
    if not devices - {HOST}:
        return "cpu"
    return "split" if HOST in devices else "gpu"


def _costs(stats: Mapping[str, Any]) -> shapes.Costs | None:
    if not stats.get("cost_verify_ms"):
        return None
    return {
        "source": stats["cost_source"],
        "verify": stats["cost_verify_ms"],
        "draft": stats["cost_draft_ms"],
        "other": stats["cost_other_ms"],
        "rebuild": stats["cost_rebuild_ms"],
        "cell": stats["cost_cell_ms"],
    }


def _roofline(stats: Mapping[str, Any], size: int) -> shapes.Fitted | None:
    costs = {int(rows): ms for rows, ms in stats.get("cost_verify_ms", {}).items()}
    line = roofline.fit(costs)
    if line is None:
        return None
    widest = max(costs)
    return {
        "floor_ms": line.floor_ms,
        "row_ms": line.row_ms,
        "knee": line.knee,
        "bytes_per_second": 1e3 * size / costs[1] if costs.get(1) else None,
        "rows_per_second": 1e3 * widest / costs[widest],
    }


def _kernels(engine: Engine, library: dict[str, Any]) -> list[shapes.Kernels]:
    if not library["devices"]:
        return []
    tuned = engine.info.get("tuned_rows", {})
    return [
        {"device": device, "type": weights, "rows": rows, "tuned": weights in tuned.get(device, {})}
        for device, types in tuning.in_force().items()
        for weights, rows in types.items()
    ]


def _choices(stats: Mapping[str, Any]) -> shapes.Choices | None:
    last = stats.get("choice")
    if last is None:
        return None
    return {
        "reason": last["reason"],
        "length": last["length"],
        "resting": last["resting"],
        "plain_rate": 1e3 * last["plain_rate"],
        "drafted_rate": 1e3 * last["drafted_rate"],
        "nodes": stats["choices"].get("nodes", {}),
        "lengths": stats["choices"].get("lengths", {}),
        "reasons": stats["choices"].get("reasons", {}),
        "drafter_failure": stats["drafter_failure"],
    }


def _totals(engine: Engine) -> shapes.Totals:
    throughput = engine.throughput
    seconds, requests = round(throughput.now, 3), engine.counters.requests
    return pick(shapes.Totals, {"seconds": seconds, "requests": requests, **throughput.total._asdict()})


def _throughput(engine: Engine, since: int) -> shapes.LastSeconds:
    throughput = engine.throughput
    seconds = [{name: round(value, 3) for name, value in asdict(one).items()} for one in throughput.since(since)]
    return {
        "now": round(throughput.now, 3),
        "kept": SECONDS,
        "running": engine.n_running,
        "waiting": engine.n_waiting,
        "seconds": [pick(shapes.ThroughputSecond, second) for second in seconds],
    }


def _slot(engine: Engine, number: int, use: SlotUse | None) -> shapes.LiveSlot:
    if use is None:
        unused = dict.fromkeys(shapes.LiveSlot.__annotations__)
        return cast(shapes.LiveSlot, {**unused, "id": number, "state": "idle", "n_ctx": engine.n_ctx_slot})
    passes, after_first = use.n_passes - 1, max(use.n_tokens - 1, 0)
    return {
        "id": number,
        "state": "idle" if not use.runs else "writing" if use.n_passes else "reading",
        "n_ctx": engine.n_ctx_slot,
        "task": use.task,
        "held": use.n_held,
        "prompt": use.n_prompt,
        "cached": use.n_cached,
        "read": use.n_read,
        "tokens": use.n_tokens,
        "max_tokens": use.max_tokens,
        "tokens_per_second": round(after_first / use.seconds, 2) if use.seconds > 0 else None,
        "acceptance_length": round(after_first / passes, 3) if passes > 0 else None,
    }
