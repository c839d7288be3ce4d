"""What this process keeps in memory: when Python looks for garbage, and when freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

_DEFAULT = gc.get_threshold()
_RARELY = 100_000  # new objects, before Python looks for cycles among them. Its default is 700
_M_MMAP_THRESHOLD = -3  # mallopt(3)
_LARGE = 1 << 20  # bytes


def collect_rarely() -> None:
    """While a program starts: nearly all that its imports make stays, and looking for garbage in it again and again
    takes as long as a third of them. `keep_all` and `collect_as_usual` end this."""
    gc.set_threshold(_RARELY)


def keep_all() -> None:
    """What exists by now stays: no collection, which holds the GIL, should walk through it again. Later objects are
    collected as Python does by default."""
    gc.freeze()
    collect_as_usual()


def collect_as_usual() -> None:
    """As Python does by default."""
    gc.set_threshold(*_DEFAULT)


def return_large_blocks() -> None:
    """From now on, a freed block of a mebibyte or more goes back to the system at once. By default glibc keeps larger
    ones, too, once it has seen them freed, and states of conversations, which have all sizes, leave holes: a fifth of a
    busy server's memory."""
    _call_glibc("mallopt", _M_MMAP_THRESHOLD, _LARGE)


def give_back() -> None:
    """Return all that was freed to the system, and let Python collect what it was told to keep."""
    gc.unfreeze()
    gc.collect()
    _call_glibc("malloc_trim", 0)


def _call_glibc(function: str, *args: int) -> None:
    """Nothing is done with another C library."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            getattr(ctypes.CDLL(None), function)(*args)
