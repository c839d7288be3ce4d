"""What goes to the terminal besides answers, and what must not get there from one."""

from __future__ import annotations

import sys

# Control characters as their pictures: an answer may not move the cursor, name the window or change the terminal.
_PICTURES: dict[int, int | None] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x0D: None,
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def visible(text: str) -> str:
    """A text without what a terminal would obey: other control characters than line ends and tabs are pictures, and
    carriage returns are left out."""
    return text.translate(_PICTURES)


def note(text: str, end: str = "\n") -> None:
    """Print aside, dimmed on a terminal."""
    dim, plain = ("\x1b[2m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
    sys.stdout.flush()
    print(f"{dim}{text}{plain}", end=end, file=sys.stderr, flush=True)
