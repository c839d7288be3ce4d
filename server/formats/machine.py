"""The machine: what the engine, the library and the system tell, in one answer (answers/machine.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import PurePath
from typing import Any

from dflash_local import native, roofline
from dflash_local.diagnose import tuning
from dflash_local.diagnose.build import gpus
from dflash_local.diagnose.machine import Machine, free_memory, load_average, process_memory, this_machine
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError
from dflash_local.scheduler import SlotUse
from dflash_local.server.service import Settings
from dflash_local.stats import EngineStats
from dflash_local.throughput import SECONDS

Body = dict[str, Any]

_MODEL = ("arch", "description", "ftype", "n_params", "size", "n_layer", "n_embd", "n_vocab", "n_ctx_train")
_DRAFTER = ("kind", "block_size", "top_k", "lattice", "target_layers", "draft_ctx", "no_draft")
# A part of the memory -> the option that says how many of its layers the GPU has.
_LAYERS = {
    "target": "n_gpu_layers",
    "context": "n_gpu_layers",
    "compute": "n_gpu_layers",
    "drafter": "n_gpu_layers_draft",
    "drafter_context": "n_gpu_layers_draft",
}


def machine(engine: Engine, settings: Settings, stats: Mapping[str, Any], state: str, since: int) -> Body:
    """`/machine`; `stats` are dflash_engine_stats, `since` is the first second of throughput to tell. It asks drivers
    and the system: not for the event loop."""
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
        "memory": _memory(engine, stats, library),
        "costs": _costs(stats),
        "roofline": _roofline(stats, info["target"]["size"]),
        "kernels": _kernels(engine, library),
        "choices": _choices(stats) if counted else None,
        "phases": dict(phases) if counted and phases else None,
        "totals": _totals(engine) if counted else None,
        "slots": [_slot(engine, *one) for one in enumerate(engine.slot_uses())] if settings.slots_endpoint else None,
        "throughput": _throughput(engine, since) if counted else None,
    }


def computer() -> Body:
    """What the system tells of it."""
    return {**_this_machine().to_json(), "memory_available": free_memory(), "load": load_average()}


@cache
def _this_machine() -> Machine:
    """What does not change; it takes a while to find out on a machine with many cores."""
    return this_machine()


def _library() -> Body:
    """What the library says of the devices; they may have gone."""
    try:
        return native.library_info()
    except DFlashError:
        return {"devices": []}


def _pair(engine: Engine, settings: Settings) -> Body:
    info, options = engine.info, engine.options
    drafter = info.get("drafter")
    file = options.drafter if options is not None and options.drafter is not None else ""
    return {
        "target": {"name": settings.alias, **_told(info["target"], _MODEL)},
        "drafter": drafter and {"name": PurePath(file).name or drafter["kind"], **_told(drafter, (*_MODEL, *_DRAFTER))},
        "no_tree": info.get("no_tree", ""),
        "not_bit_exact": info.get("not_bit_exact", ""),
    }


def _told(facts: Mapping[str, Any], names: tuple[str, ...]) -> Body:
    return {name: facts[name] for name in names if name in facts}


def _placement(engine: Engine, library: Body) -> Body:
    options, has_gpu = engine.options, bool(gpus(library))
    return {
        "n_threads": options.n_threads if options else None,
        "n_gpu_layers": options.n_gpu_layers if options and has_gpu else None,
        "n_gpu_layers_draft": options.n_gpu_layers_draft if options and has_gpu else None,
    }


def _memory(engine: Engine, stats: Mapping[str, Any], library: Body) -> Body:
    told, kept = engine.info.get("memory", {}), stats.get("host_cache")
    placed = _placement(engine, library)
    sizes = {name: told.get(name, 0) for name in ("target", "drafter", "context", "drafter_context", "compute")}
    if kept:
        sizes["host_cache"] = kept["bytes"]
    return {
        "parts": [{"part": name, "bytes": size, "on": _on(name, placed)} for name, size in sizes.items() if size],
        "process": asdict(process_memory()),
        "cells": stats.get("cells"),
        "host_cache": kept,
        **_told(told, ("slot_state", "slot_tape")),
    }


def _on(part: str, placed: Body) -> str:
    """Where a part lies, as far as the options tell: which layers are on which GPU the library does not say."""
    asked = placed[_LAYERS[part]] if part in _LAYERS else None
    if not asked:  # no layer, no GPU, or host memory by its nature
        return "cpu"
    return "gpu" if asked < 0 else "split"


def _costs(stats: Mapping[str, Any]) -> Body | None:
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


def _roofline(stats: Mapping[str, Any], size: int) -> Body | None:
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


def _kernels(engine: Engine, library: Body) -> list[Body]:
    if not library["devices"]:
        return []
    tuned = engine.info.get("tuned_rows", {})
    return [
        {"device": device, "type": weights, "rows": rows, "tuned": weights in tuned.get(device, {})}
        for device, types in tuning.in_force().items()
        for weights, rows in types.items()
    ]


def _choices(stats: Mapping[str, Any]) -> Body | None:
    last = stats.get("choice")
    if last is None:
        return None
    return {
        "reason": last["reason"],
        "length": last["length"],
        "resting": last["resting"],
        "plain_rate": 1e3 * last["plain_rate"],
        "drafted_rate": 1e3 * last["drafted_rate"],
        **{name: stats["choices"].get(name, {}) for name in ("nodes", "lengths", "reasons")},
        "drafter_failure": stats["drafter_failure"],
    }


def _totals(engine: Engine) -> Body:
    throughput = engine.throughput
    return {
        "seconds": round(throughput.now, 3),
        "requests": engine.counters.requests,
        **throughput.total._asdict(),
    }


def _throughput(engine: Engine, since: int) -> Body:
    throughput = engine.throughput
    return {
        "now": round(throughput.now, 3),
        "kept": SECONDS,
        "running": engine.n_running,
        "waiting": engine.n_waiting,
        "seconds": [
            {name: round(value, 3) for name, value in asdict(second).items()} for second in throughput.since(since)
        ],
    }


def _slot(engine: Engine, number: int, use: SlotUse | None) -> Body:
    slot: Body = {"id": number, "state": "idle", "n_ctx": engine.n_ctx_slot}
    names = ("task", "held", "prompt", "cached", "read", "tokens", "max_tokens")
    if use is None:
        return {**slot, **dict.fromkeys((*names, "tokens_per_second", "acceptance_length"))}
    values = (use.task, use.n_held, use.n_prompt, use.n_cached, use.n_read, use.n_tokens, use.max_tokens)
    if use.runs:
        slot["state"] = "writing" if use.n_passes else "reading"
    passes, after_first = use.n_passes - 1, max(use.n_tokens - 1, 0)
    return {
        **slot,
        **dict(zip(names, values, strict=True)),
        "tokens_per_second": round(after_first / use.seconds, 2) if use.seconds > 0 else None,
        "acceptance_length": round(after_first / passes, 3) if passes > 0 else None,
    }
