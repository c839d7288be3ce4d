"""Cursor: the column of a terminal's cursor."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

_TAB = 8
_NARROW, _WIDE = ("N", "Na", "H", "A"), ("W", "F")  # A is ambiguous; pictures are excluded elsewhere


class Cursor:
    """Follows printed text from the beginning of a line.

    Terminals differ in the width of some characters (emoji, pictures, combining ones), and in how they wrap a wide one
    when a single cell is left. After one of those, or when the window was resized, the column is unknown until the next
    line.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._width = columns()
        self._at: int | None = 0

    def print(self, text: str) -> None:
        """Follow printed text."""
        if self._columns() != self._width:
            self._width, self._at = self._columns(), None
        for character in text:
            self._at = 0 if character == "\n" else self._after(character)

    def _after(self, character: str) -> int | None:
        if self._at is None:
            return None
        if character == "\t":
            return min((self._at // _TAB + 1) * _TAB, self._width - 1)
        width = cells(character)
        if width is None:
            return None
        if self._at == self._width:  # terminals wrap only now
            return width
        return self._at + width if self._at + width <= self._width else None

    @property
    def room(self) -> int:
        """Cells that are certainly free after the cursor, without the last one, after which terminals wrap."""
        return 0 if self._at is None else max(self._width - 1 - self._at, 0)


def cells(character: str) -> int | None:
    """The width of a character; None if that depends on the terminal."""
    category = unicodedata.category(character)
    if unicodedata.combining(character) or category[0] not in "LNPSZ" or category == "So":
        return None
    kind = unicodedata.east_asian_width(character)
    return 1 if kind in _NARROW else 2 if kind in _WIDE else None
