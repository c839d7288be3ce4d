"""AnswerView: shows an answer of a chat while it streams."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from dflash_local.cli.terminal.notes import aside, visible


class AnswerView:
    """As text: the answer on standard output, reasoning and figures on standard error."""

    def __init__(self) -> None:
        self._thinks = False

    def on_pass(self, one_pass: Mapping[str, Any]) -> None:
        """A pass, before its text; only for requests with `return_drafts`."""

    def thought(self, text: str) -> None:
        """More of the model's reasoning."""
        self._thinks = True
        self._show_thought(text)

    def content(self, text: str) -> None:
        """More of the answer."""
        if self._thinks:
            self._thinks = False
            self._show_thought("\n")
        self._show(text)

    def end(self) -> None:
        """The answer has ended or was stopped."""
        print(flush=True)

    def figures(self, timings: Mapping[str, Any]) -> None:
        """Print a line with the answer's speed, if known."""
        length = timings.get("acceptance_length")
        aside(
            f"[{timings['predicted_per_second']:.1f} tok/s, AL {'-' if length is None else format(length, '.2f')}, "
            f"{timings['predicted_n']} tokens]"
        )

    def _show_thought(self, text: str) -> None:
        aside(visible(text) if sys.stderr.isatty() else text, end="")

    def _show(self, text: str) -> None:
        print(visible(text) if sys.stdout.isatty() else text, end="", flush=True)
