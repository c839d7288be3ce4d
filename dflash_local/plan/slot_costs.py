"""What slots cost: the memory of one more, and the context that is left to each of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dflash_local.engine_options import EngineOptions
from dflash_local.plan.fit import fit
from dflash_local.plan.memory_plan import MemoryPlan

SLOTS = (1, 2, 4, 8)
# Parts of a plan that grow with slots, and their names for users.
PARTS: Mapping[str, str] = {
    "context": "recurrent state",
    "tapes": "tape",
    "drafter_context": "drafter's K and V",
    "taps": "waiting taps",
    "compute": "buffers of the target's passes",
    "drafter_compute": "buffers of the drafter's passes",
    "output": "logits on the host",
}
_TOKENS = 1024


def slot_costs(options: EngineOptions, devices: Mapping[str, int] | None = None) -> dict[str, int]:
    """Bytes on all devices together: each part of one more slot without the K and V of its tokens, and "KV of 1024
    tokens"."""
    n_ctx = 8 * _TOKENS
    base = replace(options, n_ctx=n_ctx, n_slots=2, share_ctx=True, kv_unified=True, n_ctx_slot=0)
    two = MemoryPlan.of(base, devices)
    four = MemoryPlan.of(replace(base, n_slots=4), devices)
    longer = MemoryPlan.of(replace(base, n_ctx=2 * n_ctx), devices)
    costs = {name: (_total(four, part) - _total(two, part)) // 2 for part, name in PARTS.items()}
    costs[f"KV of {_TOKENS} tokens"] = (_total(longer, "context") - _total(two, "context")) * _TOKENS // n_ctx
    return {name: size for name, size in costs.items() if size > 0}


def by_slots(options: EngineOptions, devices: Mapping[str, int] | None) -> dict[str, Any]:
    """The largest context of each slot for some numbers of slots, and the memory of one more slot."""
    contexts = {}
    for n in SLOTS:
        fitted = fit(replace(options, n_slots=n, n_ctx=0, share_ctx=False), devices)
        contexts[n] = fitted.plan.facts["n_ctx_slot"] if fitted.fits else 0
    return {"context_of_each": contexts, "costs": slot_costs(options, devices)}


def _total(plan: MemoryPlan, part: str) -> int:
    return sum(parts.get(part, 0) for parts in plan.placement.values())
