"""MemoryPlan: what an engine with given options would allocate, by device and part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_local import native
from dflash_local.diagnose.machine import free_memory
from dflash_local.engine_options import EngineOptions

HOST = "CPU"
MIB = 2**20
# The columns of a plan's table, and the parts of `info["placement"]` in each.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "weights": ("target",),
    "KV": ("context",),
    "tapes": ("tapes",),
    "drafter": ("drafter", "drafter_context"),
    "taps": ("taps",),
    "buffers": ("compute", "drafter_compute", "output"),
}
_WEIGHTS = ("target", "drafter")


@dataclass(frozen=True)
class Device:
    """A device that the target may use; bytes. `free` is 0 where it tells none."""

    name: str
    description: str
    free: int


@dataclass(frozen=True)
class MemoryPlan:
    """One dry run of dflash_plan()."""

    options: EngineOptions
    devices: tuple[Device, ...]  # in the order in which layers go to them
    placement: Mapping[str, Mapping[str, int]]  # bytes, by device and part
    facts: Mapping[str, Any]  # all that dflash_plan() told

    @classmethod
    def of(cls, options: EngineOptions, devices: Mapping[str, int] | None = None) -> MemoryPlan:
        """`devices`: bytes of devices of another machine, by name, in the place of this one's.

        Raises:
            ModelError, PairError, RequestError: as `Engine` would.
        """
        params = options.native_params()
        params["host_memory"] = options.host_memory or free_memory()
        facts = native.plan(params, devices)
        here = tuple(Device(d["name"], d["description"], d["free"]) for d in facts["devices"])
        return cls(options, here, facts["placement"], facts)

    @property
    def n_ctx(self) -> int:
        """Tokens of context of all slots."""
        return int(self.facts["n_ctx"])

    @property
    def n_layers(self) -> int:
        """Layers that -ngl counts: the output is one of them."""
        return int(self.facts["target"]["n_layer"]) + 1

    @property
    def is_moe(self) -> bool:
        """Whether the target has experts."""
        return int(self.facts["n_expert"]) > 0

    def need(self, device: str) -> int:
        """Bytes on a device."""
        return sum(self.placement.get(device, {}).values())

    def column(self, device: str, name: str) -> int:
        """Bytes of a column of COLUMNS."""
        parts = self.placement.get(device, {})
        return sum(parts.get(part, 0) for part in COLUMNS[name])

    @property
    def on_devices(self) -> bool:
        """Whether a device holds weights."""
        return any(self.placement.get(d.name, {}).get(part, 0) for d in self.devices for part in _WEIGHTS)

    def headroom(self, margins: Mapping[str, int]) -> dict[str, int]:
        """Bytes that each device has left above its margin; negative: too few. Devices that do not tell are left
        out."""
        return {d.name: d.free - margins.get(d.name, 0) - self.need(d.name) for d in self.devices if d.free}

    def fits(self, margins: Mapping[str, int]) -> bool:
        """Whether all devices keep their margins."""
        return min(self.headroom(margins).values(), default=0) >= 0

    @property
    def host_need(self) -> int:
        """Bytes that the host must hold at once. Weights of a mapped file are not among them: they are read again when
        they are needed."""
        parts = self.placement.get(HOST, {})
        return sum(size for part, size in parts.items() if part not in _WEIGHTS)
