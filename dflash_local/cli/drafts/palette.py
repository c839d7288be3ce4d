"""Palette: colours of drafted text, if the terminal has colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.style import Style

    from dflash_local.cli.drafts.tints import Tinted

# All have the same lightness, readable on black (contrast 6:1) and on white (3.5:1), and differ for colour-blind
# readers. The drafter's get stronger with a token's depth in the tree.
DRAFT = ("#6b8f83", "#609282", "#539581", "#449880", "#2f9a7f", "#019d7e")
OTHERS = {"lookup": "#bd7221", "prediction": "#a564d1"}
# For 8 or 16 colours: one for each half of the depths.
FEW_DRAFT, FEW_OTHERS = ("cyan", "bold cyan"), {"lookup": "yellow", "prediction": "magenta"}
REFUSED, ASIDE = "dim strike", "dim"


class Palette:
    """Escape sequences for a terminal's colours."""

    def __init__(self, stream: TextIO) -> None:
        from rich.color import ColorSystem
        from rich.console import Console

        console = Console(file=stream)
        name = None if console.no_color or console.legacy_windows else console.color_system
        self._system = ColorSystem[{"256": "EIGHT_BIT"}.get(name, name.upper())] if name else None
        self._few = name in ("standard", "windows")
        self._styles: dict[str, Style] = {}

    @property
    def has_colours(self) -> bool:
        """False for pipes, dumb terminals, and with NO_COLOR."""
        return self._system is not None

    def paint(self, text: str, style: str) -> str:
        """The text in a style of rich, line by line; unchanged without colours."""
        if self._system is None or not style:
            return text
        if style not in self._styles:
            from rich.style import Style

            self._styles[style] = Style.parse(style)
        return self._styles[style].render(text, color_system=self._system)

    def tint(self, part: Tinted) -> str:
        """A part of an answer in the colour of its proposer."""
        return self.paint(part.text, self.style_of(part.by, part.depth))

    def style_of(self, by: str, depth: int) -> str:
        """A style of rich; "" for the target's own text."""
        if by in ("draft", "mtp"):
            shade = min(max(depth, 1), len(DRAFT)) - 1
            return FEW_DRAFT[2 * shade // len(DRAFT)] if self._few else DRAFT[shade]
        return (FEW_OTHERS if self._few else OTHERS).get(by, "")
