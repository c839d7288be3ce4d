"""The word that was probably meant."""

from __future__ import annotations

from collections.abc import Sequence


def closest(word: str, known: Sequence[str]) -> str | None:
    """The known word that is most like `word`; None if none is."""
    from difflib import get_close_matches  # imported for errors alone

    return next(iter(get_close_matches(word, known, 1)), None)
