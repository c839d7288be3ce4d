"""When Python looks for garbage: cycles of objects that nothing else refers to, from walks through all objects."""

from __future__ import annotations

import gc

_DEFAULT = gc.get_threshold()
_RARELY = 100_000  # new objects, before it looks for cycles among them. Python's default is 700


def collect_rarely() -> None:
    """While a program starts: nearly all that its imports make stays, and looking through it again and again takes as
    long as a third of them. `keep_all` ends this."""
    gc.set_threshold(_RARELY)


def keep_all() -> None:
    """What exists by now stays: no collection, which holds the GIL, should walk through it again. Again collects as
    Python does by default."""
    gc.freeze()
    gc.set_threshold(*_DEFAULT)
