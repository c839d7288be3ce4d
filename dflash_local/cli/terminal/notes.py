"""Output to the terminal: notes and errors besides answers, and text without control characters."""

from __future__ import annotations

import sys

from dflash_local.cli.terminal.console import has_escapes
from dflash_local.errors import DFlashError

# Pictures of control characters, so that an answer cannot move the cursor or change the terminal.
_PICTURES: dict[int, int | None] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x0D: None,
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), 0xFFFD),  # bytes of file names that are no UTF-8
}


def visible(text: str) -> str:
    """A text without control characters: carriage returns are removed, line ends and tabs stay, all others become
    pictures."""
    return text.translate(_PICTURES)


def note(text: str) -> None:
    """Print a note to the user on standard error."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def error_text(error: DFlashError) -> str:
    """An error as one line for what is wrong, and another for the fix if it is known. Both may be a server's words."""
    return visible(f"error: {error.message}" + (f"\n  fix: {error.hint}" if error.hint else ""))


def aside(text: str, end: str = "\n") -> None:
    """Print a text to standard error beside answers, dimmed on a terminal that can do that."""
    dim, plain = ("\x1b[2m", "\x1b[0m") if has_escapes(sys.stderr) else ("", "")
    sys.stdout.flush()
    print(f"{dim}{text}{plain}", end=end, file=sys.stderr, flush=True)
