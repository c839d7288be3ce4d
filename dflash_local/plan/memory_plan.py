"""MemoryPlan: the memory of an engine with given options, by device and part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_local import native
from dflash_local.engine_options import EngineOptions
from dflash_local.machine.hardware import free_memory

HOST = "CPU"
# The columns of a plan's table, and the parts of `info["placement"]` in each.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "weights": ("target",),
    "KV": ("context",),
    "tapes": ("tapes",),
    "drafter": ("drafter", "drafter_context"),
    "taps": ("taps",),
    "projector": ("projector",),
    "buffers": ("compute", "drafter_compute", "output"),
}
_WEIGHTS = ("target", "drafter")


@dataclass(frozen=True)
class Device:
    """A device that the target may use; sizes in bytes. `free` is 0 if the device does not report it."""

    name: str
    description: str
    free: int


@dataclass(frozen=True)
class MemoryPlan:
    """One dry run of dflash_plan()."""

    options: EngineOptions
    devices: tuple[Device, ...]  # in the order in which layers go to them
    placement: Mapping[str, Mapping[str, int]]  # bytes, by device and part
    facts: Mapping[str, Any]  # the whole result of dflash_plan()

    @classmethod
    def of(cls, options: EngineOptions, devices: Mapping[str, int] | None = None) -> MemoryPlan:
        """`devices`: bytes of another machine's devices, by name, instead of this machine's.

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
        """Context of all slots together, in tokens."""
        return int(self.facts["n_ctx"])

    @property
    def n_layers(self) -> int:
        """Layers as -ngl counts them, with the output."""
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
        """Bytes of each device left above its margin; negative: too few. Without devices of unknown size."""
        return {d.name: d.free - margins.get(d.name, 0) - self.need(d.name) for d in self.devices if d.free}

    def fits(self, margins: Mapping[str, int]) -> bool:
        """Whether all devices keep their margins."""
        return min(self.headroom(margins).values(), default=0) >= 0

    @property
    def host_need(self) -> int:
        """Bytes that the host must hold at once, without weights of mapped files, which can be read again."""
        parts = self.placement.get(HOST, {})
        return sum(size for part, size in parts.items() if part not in _WEIGHTS or not self.options.mmap)
