"""Flags that were typed and change nothing beside others: each is refused by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dflash_local.errors import RequestError

Typed = Mapping[str, Sequence[str]]


def refuse_idle(typed: Typed, places: Iterable[str], why: str) -> None:
    """Raise RequestError if one of the flags at these places was typed, since it has no effect."""
    if place := next((place for place in places if place in typed), None):
        word = typed[place][0].partition("=")[0]
        raise RequestError(f"{word} has no effect: {why}", param=word, hint=f"leave {word} out")
