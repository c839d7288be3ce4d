"""Makes console and streams of a process the same on all systems."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path


def set_up_console() -> None:
    """Streams that are closed become empty ones. Input that is no UTF-8 is read as far as it is. On Windows: UTF-8 for
    pipes instead of the local code page, and escape sequences for colours, which are off in older consoles."""
    _open_closed_streams()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    platform: str = sys.platform  # so that type checkers see the code below on all systems
    if platform != "win32":
        return
    from colorama import just_fix_windows_console

    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
    just_fix_windows_console()


def _open_closed_streams() -> None:
    """Python has None for those that were closed by whoever started it."""
    nowhere = Path(os.devnull)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, nowhere.open(mode, encoding="utf-8"))
