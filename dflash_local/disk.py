"""Whether a disk is full."""

from __future__ import annotations

import errno


def is_full(error: OSError) -> bool:
    """Whether the disk, or its user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
