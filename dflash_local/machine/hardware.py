"""The machine of a measurement, in words and numbers."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from dflash_local.machine import windows_cores, windows_memory

GIB = 1 << 30
_UNLIMITED = 1 << 60  # version 1 of control groups writes no limit as a number near 2^63


@dataclass(frozen=True)
class Machine:
    """A computer. Memory in bytes (0: unknown); `load` is the one-minute load average (-1: unknown)."""

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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Machine:
        """From `to_json`, perhaps of an older version; missing fields are unknown."""
        unknown = cls("unknown processor", 0, 0, 0, 0, "unknown system", "", -1.0)
        return replace(unknown, **{field.name: data[field.name] for field in fields(cls) if field.name in data})


def this_machine() -> Machine:
    """This computer; unknown parts are empty, never an error."""
    import platform  # a slow import, and the start of a server needs none of it

    memory = _meminfo()
    logical = os.cpu_count() or 1
    return Machine(
        cpu=processor(),
        cores=_cpuinfo()[1] or _sysctl("hw.physicalcpu") or len(_windows_cores()) or _online_cores() or logical,
        logical_cores=logical,
        memory_total=memory.get("MemTotal", 0),
        memory_available=free_memory(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        load=load_average(),
    )


@cache
def processor() -> str:
    """The processor's name."""
    if name := _cpuinfo()[0]:
        return name
    import platform  # a slow import, as above

    return platform.processor() or platform.machine()


def load_average() -> float:
    """The one-minute load average; -1 if unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0


@dataclass(frozen=True)
class ProcessMemory:
    """Memory of this process in bytes, 0 if unknown.

    Attributes:
        resident: in memory now; `peak`: its maximum so far.
        files: the part mapped from files, which the system can drop.
    """

    resident: int
    files: int
    peak: int


def process_memory() -> ProcessMemory:
    """The memory of this process on Linux and Windows; zeros elsewhere."""
    sizes = windows_memory.process_sizes() if sys.platform == "win32" else _sizes("/proc/self/status")
    return ProcessMemory(sizes.get("VmRSS", 0), sizes.get("RssFile", 0), sizes.get("VmHWM", 0))


def cpu_flags() -> frozenset[str]:
    """Instruction sets of the first CPU by Linux's names ("avx2", "avx512f", ...); empty elsewhere."""
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def usable_cores() -> int:
    """Cores that this process may use at once, by its affinity and its container's quota: logical ones, of which a part
    counts whole."""
    return min([len(_affinity()), *_quotas()])


def core_limit() -> int | None:
    """Physical cores that this process may use, if an affinity or a quota limits it, else None. Of processors with fast
    and slow cores never more than the fast ones, with which the slow ones do not keep up."""
    usable, affinity = usable_cores(), _affinity()
    if usable >= (os.cpu_count() or 1):
        return None
    return min(usable, _physical(affinity), _fast_cores() or usable)


def default_threads() -> int:
    """Threads of an engine if nobody says: one for each physical core that this process may use, of fast and slow ones
    the fast alone, as llama.cpp takes them."""
    return core_limit() or _fast_cores() or this_machine().cores


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _quotas() -> Iterator[int]:
    """The share of processor time in each control group that limits it, in cores."""
    for folder in _container_folders("cpu"):
        quota, _, period = "".join(_lines(f"{folder}/cpu.max")).partition(" ")
        if not quota:  # version 1, where -1 is no limit
            quota, period = ("".join(_lines(f"{folder}/cpu.cfs_{name}_us")) for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period):
            yield max(-(-int(quota) // int(period)), 1)


def _physical(cores: set[int]) -> int:
    """How many physical cores these logical ones are; 0 if there are none."""
    folder = "/sys/devices/system/cpu"
    return len({"".join(_lines(f"{folder}/cpu{core}/topology/thread_siblings_list")) or core for core in cores})


def _fast_cores() -> int:
    """Physical cores of the fast kind; 0 if all are of one kind, or nothing says so."""
    classes = _windows_cores()
    fast = classes.count(max(classes)) if len(set(classes)) > 1 else 0
    return _sysctl("hw.perflevel0.physicalcpu") or _physical(_listed("/sys/devices/cpu_core/cpus")) or fast


def _online_cores() -> int:
    """Physical cores by Linux's topology; of some processors /proc/cpuinfo names none. 0 elsewhere."""
    return _physical(_listed("/sys/devices/system/cpu/online"))


def _windows_cores() -> list[int]:
    """The efficiency class of each physical core of Windows, where a higher one is faster; empty elsewhere."""
    return windows_cores.efficiency_classes() if sys.platform == "win32" else []


def _listed(path: str) -> set[int]:
    """The numbers in one of the kernel's lists, such as 0-3,8; empty without the file."""
    ranges = [part.split("-") for part in "".join(_lines(path)).strip().split(",") if part]
    return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}


def _sysctl(name: str) -> int:
    """One of macOS's numbers; 0 if it has none of this name, and elsewhere."""
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    if sys.platform == "darwin":  # the value stays 0 if the call fails
        places = ctypes.byref(value), ctypes.byref(size)
        ctypes.CDLL(None).sysctlbyname(name.encode(), *places, None, ctypes.c_size_t(0))
    return value.value


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


def free_memory() -> int:
    """Bytes that this process may still use, by the system's and its container's limits; 0 if unknown."""
    free = [size for size in (_meminfo().get("MemAvailable", 0), _container_memory()) if size]
    return min(free, default=0)


def free_swap() -> int:
    """Bytes of swap that this process may still use, by the system's and its container's limits; 0 if there is none or
    it is unknown."""
    return min([_meminfo().get("SwapFree", 0), *_container_swap()])


def _container_memory() -> int:
    """Bytes left by the control groups' limits, 0 if there are none. The kernel's file cache counts as free."""
    left = []
    for folder in _container_folders():
        limit = _number(f"{folder}/memory.max") or _number(f"{folder}/memory.limit_in_bytes")
        used = _number(f"{folder}/memory.current") or _number(f"{folder}/memory.usage_in_bytes")
        kept = sum(
            int(size)
            for name, _, size in (line.partition(" ") for line in _lines(f"{folder}/memory.stat"))
            if name in ("inactive_file", "active_file")
        )
        if limit and used:
            left.append(max(limit - used + kept, 1))
    return min(left, default=0)


def _container_swap() -> Iterator[int]:
    """Bytes of swap left by each control group that limits it."""
    for folder in _container_folders():
        limit, used = _size(f"{folder}/memory.swap.max"), _size(f"{folder}/memory.swap.current")
        if limit is None or used is None:  # version 1 counts memory and swap together
            limit, used = (_swap_of_both(folder, name) for name in ("limit", "usage"))
        if limit is not None and used is not None:
            yield max(limit - used, 0)


def _swap_of_both(folder: str, name: str) -> int | None:
    """The part of a number about memory and swap that is swap; None if there is no such number or no limit."""
    both, memory = _size(f"{folder}/memory.memsw.{name}_in_bytes"), _size(f"{folder}/memory.{name}_in_bytes")
    return None if both is None or memory is None or both >= _UNLIMITED else max(both - memory, 0)


def _container_folders(controller: str = "memory") -> Iterator[str]:
    """The folders of this process' control groups and of those around them; the top is what a container sees. Both
    versions."""
    yield from ("/sys/fs/cgroup", f"/sys/fs/cgroup/{controller}")
    for line in _lines("/proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = f"/sys/fs/cgroup/{controller}" if controllers else "/sys/fs/cgroup"
        yield from (f"{top}{folder}" for folder in (group, *map(str, PurePosixPath(group).parents)) if folder != "/")


def _number(path: str) -> int:
    return _size(path) or 0


def _size(path: str) -> int | None:
    """The number in a file; None if it has none."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _meminfo() -> dict[str, int]:
    """Memory in bytes by /proc/meminfo's names; only the total, if anything, except on Linux and Windows."""
    if sys.platform == "win32":
        return windows_memory.machine_sizes()
    sizes = _sizes("/proc/meminfo")
    if not sizes and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes["MemTotal"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sizes


def _sizes(path: str) -> dict[str, int]:
    """Lines such as `VmRSS:  1234 kB`, in bytes."""
    pairs = (line.partition(":") for line in _lines(path))
    return {key: int(value.split()[0]) * 1024 for key, _, value in pairs if value.strip().endswith("kB")}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
