"""Indentation: finds the line of an answer that is indented less than its client wants."""

from __future__ import annotations

_LINE_END = ord("\n")
_BLANKS = b" \t"


class Indentation:
    """Reads an answer piece by piece. The rule is llama-server's: only spaces and tabs indent, each counts as one, the
    first line is not looked at, and an empty line is not indented at all.

    Args:
        least: spaces and tabs that every line but the first must begin with.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._width: int | None = None  # of the line so far; None: it has other text, or is the first

    def end(self, piece: bytes) -> int | None:
        """The bytes of the next piece before the text of a line that is indented less; None: it has no such line."""
        for index, byte in enumerate(piece):
            if self._width is not None and byte in _BLANKS:
                self._width += 1
                continue
            if self._width is not None and self._width < self._least:
                return index
            self._width = 0 if byte == _LINE_END else None
        return None
