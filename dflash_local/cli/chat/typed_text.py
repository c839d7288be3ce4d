"""What is typed or pasted into a chat, or comes through a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from dflash_local.cli.terminal.console import is_dumb
from dflash_local.cli.terminal.notes import aside

# Seconds within which the next line of a paste comes, and no typed one.
_PASTE_GAP = 0.03


def texts(is_interactive: bool) -> Iterator[str]:
    """One text for each line; a line that ends with a backslash continues in the next, and what is pasted into a
    terminal is one text. Ctrl-C discards an unfinished one if somebody types, else it ends the program."""
    begun: list[str] = []
    while True:
        try:
            text = _typed("... " if begun else "> ") if is_interactive else input()
        except EOFError:
            if is_interactive:
                print(file=None if sys.stdout.isatty() else sys.stderr)
            if begun:
                yield "\n".join(begun)
            return
        except KeyboardInterrupt:
            if not is_interactive:
                raise
            begun.clear()
            aside("\n/exit or Ctrl-D leaves")
            continue
        if text.endswith("\\"):
            begun.append(text[:-1])
            continue
        yield "\n".join([*begun, text.rstrip()])
        begun.clear()


def enable_line_editing() -> None:
    """Give input() history, editing, and pastes as one text."""
    with suppress(ImportError):  # Windows has its own
        import readline

        if not _is_libedit() and not is_dumb():
            # Python switches it off, because its own prompt reads line by line.
            readline.parse_and_bind("set enable-bracketed-paste on")


def _typed(prompt: str) -> str:
    """What was typed or pasted before Enter. The prompt is no part of what goes into a file or a pipe."""
    is_ahead = _waits()
    if sys.stdout.isatty():
        text = input(prompt)
    else:
        print(prompt, end="", file=sys.stderr, flush=True)
        text = input()
    if _marks_pastes() or is_ahead:  # typed while an answer came: perhaps no paste
        return text
    with suppress(EOFError):
        while _waits(_PASTE_GAP):
            text += "\n" + input()
    return text


def _marks_pastes() -> bool:
    """Whether input() returns a paste as a whole."""
    return "readline" in sys.modules and not _is_libedit() and sys.stdout.isatty() and not is_dumb()


def _is_libedit() -> bool:
    return "libedit" in (sys.modules["readline"].__doc__ or "")


def _waits(seconds: float = 0.0) -> bool:
    """Whether another line is there, or comes in this time. False on Windows, which cannot tell."""
    if os.name != "posix":
        return False
    import select

    with suppress(OSError, ValueError):  # no real terminal
        return bool(select.select([sys.stdin], [], [], seconds)[0])
    return False
