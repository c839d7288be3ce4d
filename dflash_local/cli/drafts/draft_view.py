"""DraftView: shows an answer with its drafts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from dflash_local.cli.drafts.cursor import Cursor, cells
from dflash_local.cli.drafts.figures import figures_line
from dflash_local.cli.drafts.palette import ASIDE, REFUSED, Palette
from dflash_local.cli.drafts.tally import Tally
from dflash_local.cli.drafts.tints import Tinted, Tints, refused
from dflash_local.cli.terminal.answer_view import AnswerView
from dflash_local.cli.terminal.notes import visible

# Refused text is shown only for passes of at least this time: shorter ones would flicker.
SHOWN_MS = 25.0
# Save the cursor and switch wrapping off; restore both; erase to the end of the line.
_BEHIND, _BACK, _ERASE = "\x1b7\x1b[?7l", "\x1b[?7h\x1b8", "\x1b[K"
_LEAST_ROOM = 4


class DraftView(AnswerView):
    """Tints text by who proposed it; after the cursor, until the next text, it shows what the last pass refused.

    Only refused text is ever overwritten. Without colours the text is plain; a pipe gets exactly the answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tints, self._tally = Tints(), Tally()
        self._cursor = Cursor(_columns)
        self._out, self._aside = Palette(sys.stdout), Palette(sys.stderr)
        self._refused, self._refused_is_shown = "", False

    def on_pass(self, one_pass: Mapping[str, Any]) -> None:
        self._tints.push(one_pass)
        self._tally.add(one_pass)
        slow = one_pass["draft_ms"] + one_pass["verify_ms"] >= SHOWN_MS
        self._refused = visible(refused(one_pass)).partition("\n")[0].replace("\t", " ") if slow else ""

    def end(self) -> None:
        self._refused = ""
        self._print(sys.stdout, self._out, [Tinted("\n")])

    def figures(self, timings: Mapping[str, Any]) -> None:
        if not self._tally.n_passes:  # a server that does not report drafts, or an answer of one token
            super().figures(timings)
            return
        columns = _columns() if sys.stderr.isatty() else None
        print(figures_line(timings, self._tally, self._aside, columns), file=sys.stderr, flush=True)

    def _show_thought(self, text: str) -> None:
        parts = [Tinted(text)] if text == "\n" else self._tints.take(text)
        self._print(sys.stderr, self._aside, parts, style="italic", bare_style=f"{ASIDE} italic")

    def _show(self, text: str) -> None:
        self._print(sys.stdout, self._out, self._tints.take(text))

    def _print(
        self, stream: TextIO, palette: Palette, parts: Iterable[Tinted], style: str = "", bare_style: str = ""
    ) -> None:
        """Print the parts at once; `bare_style` is for those without a tint."""
        printed = _ERASE if self._refused_is_shown else ""
        self._refused_is_shown = False
        is_terminal = stream.isatty()
        for part in parts:
            text = visible(part.text) if is_terminal else part.text
            tint = palette.style_of(part.by, part.depth)
            printed += palette.paint(text, f"{style} {tint}".strip() if tint else bare_style)
            if is_terminal:
                self._cursor.print(text)
        if is_terminal and palette.has_colours and self._tints.all_taken:
            printed += self._behind_cursor(palette)
        stream.write(printed)
        stream.flush()

    def _behind_cursor(self, palette: Palette) -> str:
        """The sequence that prints the refused text, as far as the line has room."""
        room, shown = self._cursor.room, ""
        for character in self._refused:
            width = cells(character)
            if width is None or width > room:
                break
            room, shown = room - width, shown + character
        if self._cursor.room < _LEAST_ROOM or not shown.strip():
            return ""
        self._refused_is_shown = True
        return _BEHIND + palette.paint(shown, REFUSED) + _BACK


def legend() -> str:
    """The meaning of the tints, each in its tint; empty without colours."""
    palette = Palette(sys.stderr)
    if not palette.has_colours:
        return ""
    drafted = "".join(
        palette.tint(Tinted(text, "draft", depth)) for depth, text in enumerate(("dra", "fte", "d, d", "eep", "er"), 1)
    )
    others = (palette.tint(Tinted(*part)) for part in (("quoted", "lookup", 1), ("predicted", "prediction", 1)))
    return ", ".join((drafted, *others, "the target's own"))


def _columns() -> int:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            return os.get_terminal_size(stream.fileno()).columns or 80
    return 80
