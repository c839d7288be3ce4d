"""A disk that is full: whether it is, and what helps."""

from __future__ import annotations

import errno


def is_full(error: OSError) -> bool:
    """Whether the disk, or its user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def full_disk_hint(variable: str = "DFLASH_CACHE") -> str:
    """What helps, if `variable` names the folder."""
    return f"free some, or point {variable} at a larger disk"
