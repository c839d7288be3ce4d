"""Options that take a list, like 1,2,4."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks import targets


class Commas(tuple[Any, ...]):
    """An option like 1,2,4."""

    def __str__(self) -> str:
        return ",".join(map(str, self))

    @classmethod
    def numbers(cls, text: str) -> Commas:
        values = cls(int(word) for word in text.split(","))
        if min(values) < 1:
            raise argparse.ArgumentTypeError(f"{text}: every number must be at least 1")
        return values

    @classmethod
    def types(cls, text: str) -> Commas:
        """Parse types of `targets`."""
        values = cls(text.lower().split(","))
        if wrong := [word for word in values if word not in targets.TYPES]:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not one of {', '.join(targets.TYPES)}")
        return values


def add_types_option(ap: argparse.ArgumentParser, default: Sequence[str] = ("q4_0", "q4_k_m", "q8_0")) -> None:
    ap.add_argument(
        "--types", type=Commas.types, default=Commas(default), metavar="A,B", help=f"of: {', '.join(targets.TYPES)}"
    )
