"""The machine that a figure was measured on, in words and numbers."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dflash_local.diagnose.finding import Finding, ok, warn

GIB = 1 << 30


@dataclass(frozen=True)
class Machine:
    """One computer. Memory in bytes (0 = unknown); `load` is the one-minute load average (-1 = unknown)."""

    cpu: str
    cores: int
    logical_cores: int
    memory_total: int
    memory_available: int
    system: str
    python: str
    load: float

    def __str__(self) -> str:
        return f"{self.cpu}, {self.cores} cores, {self.memory_total / GIB:.0f} GiB, {self.system}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def this_machine() -> Machine:
    """Describe the computer that runs this process; unknown parts are empty, never an error."""
    memory = _meminfo()
    cpu, cores = _cpuinfo()
    logical = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0
    return Machine(
        cpu=cpu or platform.processor() or platform.machine(),
        cores=cores or logical,
        logical_cores=logical,
        memory_total=memory.get("MemTotal", 0),
        memory_available=memory.get("MemAvailable", 0),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        load=load,
    )


def cpu_flags() -> frozenset[str]:
    """Instruction sets of the first CPU as Linux names them ("avx2", "avx512f", ...); empty elsewhere."""
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def look_at_machine(machine: Machine, n_threads: int = 0) -> Iterator[Finding]:
    """The computer, and whether something else keeps it busy."""
    if machine.load > machine.cores:
        advice = "end what else runs: drafting pays by using idle compute, and there is none"
        yield warn("machine", f"{machine}; load {machine.load:.1f}", advice)
    else:
        yield ok("machine", str(machine))
    if n_threads > machine.cores:
        yield warn(
            "threads",
            f"-t {n_threads} on {machine.cores} physical cores",
            f"use -t {machine.cores}: more threads wait for each other",
        )


def _cpuinfo() -> tuple[str, int]:
    """(model name, physical cores) from Linux; ("", 0) elsewhere."""
    name, physical = "", set()
    package = "0"
    for line in _lines("/proc/cpuinfo"):
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "model name":
            name = value
        elif key == "physical id":
            package = value
        elif key == "core id":
            physical.add((package, value))
    return name, len(physical)


def _meminfo() -> dict[str, int]:
    """Memory in bytes by /proc/meminfo's names; other systems report the total at most."""
    sizes = {}
    for line in _lines("/proc/meminfo"):
        key, _, value = line.partition(":")
        if value.strip().endswith("kB"):
            sizes[key] = int(value.split()[0]) * 1024
    if not sizes and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes["MemTotal"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sizes


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
