"""A plan as JSON."""

from __future__ import annotations

import shlex
from typing import Any

from dflash_local.plan.fit import Fitted
from dflash_local.plan.flags import flags


def record(fitted: Fitted) -> dict[str, Any]:
    """Whether it fits, the flags for it, and each device's memory in bytes."""
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
