"""A place in a script's text."""

from __future__ import annotations

import re

from tests.release.powershell.faults import NotInSubset, Thrown

_BLANKS = re.compile(r"(?:[ \t]|`\r?\n|<#.*?#>|(?<![^\s(){};,|&])#[^\n]*)+", re.DOTALL)
_LINES = re.compile(r"(?:[ \t\r\n]|`\r?\n|<#.*?#>|(?<![^\s(){};,|&])#[^\n]*)+", re.DOTALL)


class Cursor:
    def __init__(self, text: str, file: str = "") -> None:
        self.text = text.replace("\r\n", "\n")
        self.file = file
        self.place = 0

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.place) + 1

    def wrong(self, expected: str) -> Thrown:
        """Text that PowerShell would not parse either."""
        return Thrown(f"line {self.line}: expected {expected} before {self._rest()!r}", "ParseException")

    def unknown(self, what: str) -> NotInSubset:
        return NotInSubset(f"line {self.line}: {what} is not in the subset, before {self._rest()!r}")

    def _rest(self) -> str:
        return self.text[self.place : self.place + 40]

    def blanks(self) -> None:
        """Go past blanks, comments, and ends of lines after a backtick."""
        self.match(_BLANKS)

    def lines(self) -> None:
        """Go past ends of lines, too."""
        self.match(_LINES)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What is here, and go past it."""
        found = pattern.match(self.text, self.place)
        if found:
            self.place = found.end()
        return found

    def sees(self, *texts: str) -> bool:
        return self.text.startswith(texts, self.place)

    def take(self, text: str) -> bool:
        if not self.sees(text):
            return False
        self.place += len(text)
        return True

    def must(self, text: str) -> None:
        if not self.take(text):
            raise self.wrong(repr(text))

    @property
    def ended(self) -> bool:
        return self.place >= len(self.text)
