"""Cursor: where a terminal's cursor is in its line."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

_TAB = 8
_NARROW, _WIDE = ("N", "Na", "H", "A"), ("W", "F")  # of ambiguous ones, those that are no pictures


class Cursor:
    """Follows what is printed, from the beginning of a line on.

    Terminals differ in the width of some characters (emoji, pictures, combining ones), and in what they do with a wide
    one for which the line has a single cell left. After one of those, or when the window was made wider or narrower,
    the place is unknown until the next line.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._width = columns()
        self._at: int | None = 0

    def print(self, text: str) -> None:
        """Go on by what is printed."""
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
        if self._at == self._width:  # behind the last cell: only now it goes to the next line
            return width
        return self._at + width if self._at + width <= self._width else None

    @property
    def room(self) -> int:
        """Cells that are surely free behind it in the line, without the last one, behind which terminals wrap."""
        return 0 if self._at is None else max(self._width - 1 - self._at, 0)


def cells(character: str) -> int | None:
    """How wide a terminal shows a character; None if that depends on the terminal."""
    category = unicodedata.category(character)
    if unicodedata.combining(character) or category[0] not in "LNPSZ" or category == "So":
        return None
    kind = unicodedata.east_asian_width(character)
    return 1 if kind in _NARROW else 2 if kind in _WIDE else None
