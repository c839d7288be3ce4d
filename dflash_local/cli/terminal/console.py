"""Makes console and streams of a process the same on all systems."""

from __future__ import annotations

import io
import sys


def set_up_console() -> None:
    """Input that is no UTF-8 is read as far as it is. On Windows: UTF-8 for pipes instead of the local code page, and
    escape sequences for colours, which are off in older consoles."""
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
