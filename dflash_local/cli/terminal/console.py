"""Makes console and streams of a process the same on all systems, and knows which show escape sequences."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TextIO

_DUMB = ("dumb", "unknown")  # values of TERM


def set_up_console() -> None:
    """Streams that are closed become empty ones. Input that is no UTF-8 is read as far as it is, and output has a
    question mark for what its encoding lacks. On Windows: UTF-8 for pipes instead of the local code page, and escape
    sequences for colours, which are off in older consoles."""
    _open_closed_streams()
    for stream in (sys.stdin, sys.stdout):  # standard error has escapes of its own
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    platform: str = sys.platform  # so that type checkers see the code below on all systems
    if platform != "win32":
        return
    from colorama import just_fix_windows_console

    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
    just_fix_windows_console()


def has_escapes(stream: TextIO) -> bool:
    """Whether what is written there may be dimmed or coloured: a terminal that can do that, without NO_COLOR, which
    counts only with a value."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and not is_dumb()


def is_dumb() -> bool:
    """Whether terminals show escape sequences as they are."""
    return os.environ.get("TERM") in _DUMB


def _open_closed_streams() -> None:
    """Python has None for those that were closed by whoever started it."""
    nowhere = Path(os.devnull)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, nowhere.open(mode, encoding="utf-8"))
