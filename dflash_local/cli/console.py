"""The console and the streams of a process, made alike on all systems."""

from __future__ import annotations

import io
import sys


def set_up_console() -> None:
    """On Windows: UTF-8 for what comes out of a pipe or goes into one, not the code page of the country, and escape
    sequences for colours, which its older consoles leave off."""
    platform: str = sys.platform  # a type checker knows its own system's alone
    if platform != "win32":
        return
    from colorama import just_fix_windows_console

    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=None if stream is sys.stdin else stream.errors)
    just_fix_windows_console()
