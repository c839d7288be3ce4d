"""Disks: whether one is full, and sizes in words."""

from __future__ import annotations

import errno


def is_full(error: OSError) -> bool:
    """Whether the disk, or its user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def decimal_size_text(n_bytes: float) -> str:
    """A size like "4.7 GB", in decimal units as on the Hub."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes:.0f} bytes"
