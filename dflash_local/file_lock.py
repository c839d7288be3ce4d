"""A lock between processes: a file, which the operating system unlocks when the process that holds it ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock at `path` while the block runs, which may end in another thread than it began. Makes its folder.
    `waiting` is called once if another process has the lock. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        waiting()
        lock.acquire()
    except NotImplementedError:  # of older versions of filelock, where a file system has no locks
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    try:
        yield
    finally:
        lock.release()
