"""Physical cores on Windows, of which hybrid processors have fast and slow ones."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

_CORES = 0  # RelationProcessorCore


def efficiency_classes() -> list[int]:
    """The efficiency class of each physical core; empty if the call fails."""
    look = ctypes.WinDLL("kernel32").GetLogicalProcessorInformationEx  # type: ignore[attr-defined,unused-ignore]
    size = ctypes.c_uint32(0)
    look(_CORES, None, ctypes.byref(size))  # fails, and says how many bytes there are
    data = ctypes.create_string_buffer(size.value)
    return list(_classes(data.raw[: size.value])) if look(_CORES, data, ctypes.byref(size)) else []


def _classes(data: bytes) -> Iterator[int]:
    """Of entries with relationship and size, of 32 bits each, then a byte of flags and the class."""
    while len(data) > 9:
        yield data[9]
        data = data[max(int.from_bytes(data[4:8], "little"), 10) :]
