"""A disk that is full, or has no place for temporary files: whether it is so, and what helps."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from dflash_local.errors import DFlashError


def is_full(error: OSError) -> bool:
    """Whether the disk, or its user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def full_disk_hint(variable: str = "DFLASH_CACHE") -> str:
    """What helps, if `variable` names the folder."""
    return f"free some, or point {variable} at a larger disk"


@contextmanager
def temporary_space() -> Iterator[None]:
    """Faults of making temporary files as DFlashError. A container with a read-only root has no folder for them."""
    try:
        yield
    except OSError as error:
        hint = "set TMPDIR to a folder that can be written; for a container, mount one: --tmpfs /tmp"
        raise DFlashError(
            f"cannot make temporary files: {error.strerror or error}",
            hint=full_disk_hint("TMPDIR") if is_full(error) else hint,
        ) from None
