"""Flags that may be given several times, each time with one more value."""

from __future__ import annotations

import argparse
from typing import Any


class Repeating(argparse.Action):
    """A flag of which all uses count, not only the last."""


class Joined(Repeating):
    """A list joined with commas, to which each use of the flag appends; the first use replaces the default."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _name: str | None = None) -> None:
        held = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if held is self.default else f"{held},{values}")


class Appended(Repeating):
    """A tuple to which each use of the flag appends; () by default."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, **{"default": (), **options})

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _name: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), values))
