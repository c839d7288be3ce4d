"""Memory of the machine and of this process on Windows, by the names of Linux's files under /proc."""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p


class _Status(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = [("size", c_uint32), ("load", c_uint32), *((f"n{i}", c_uint64) for i in range(7))]


class _Counters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = [("size", c_uint32), ("faults", c_uint32), *((f"n{i}", c_size_t) for i in range(8))]


def machine_sizes() -> dict[str, int]:
    """MemTotal and MemAvailable, in bytes; empty if the call fails."""
    status = _Status(size=ctypes.sizeof(_Status))
    known = ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined,unused-ignore]
    return {"MemTotal": status.n0, "MemAvailable": status.n1} if known else {}


def process_sizes() -> dict[str, int]:
    """VmRSS and VmHWM, in bytes; empty if the call fails."""
    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
    kernel.GetCurrentProcess.restype = c_void_p
    counters = _Counters(size=ctypes.sizeof(_Counters))
    known = kernel.K32GetProcessMemoryInfo(
        c_void_p(kernel.GetCurrentProcess()), ctypes.byref(counters), ctypes.sizeof(counters)
    )
    return {"VmHWM": counters.n0, "VmRSS": counters.n1} if known else {}
