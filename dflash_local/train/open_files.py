"""The limit of open files, against which mapped ones count, too."""

from __future__ import annotations

import sys

from dflash_local.errors import DFlashError

_SPARE = 128  # files that the process needs besides: models, logs, devices


def allow_mapped_files(n: int) -> None:
    """Raise this process's limit of open files, if need be, so that `n` more can be mapped. Raises DFlashError if it
    may not be raised so far."""
    if sys.platform == "win32" or sys.version_info >= (3, 13):  # a map holds no descriptor there (map_tensors)
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or n + _SPARE <= soft:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n + _SPARE, hard))
    except (OSError, ValueError):
        raise DFlashError(
            f"the fit reads {n} files of hidden states at once, and this process may open {soft}",
            hint=f"allow more: 'ulimit -n {n + _SPARE}', or use Python 3.13; what is done so far is kept",
        ) from None
