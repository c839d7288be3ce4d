"""CommandLine: what was typed, as words."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from dflash_local.cli.flags.flag import Repeating
from dflash_local.cli.parser_actions import actions_by_name, place_of


@dataclass(frozen=True)
class CommandLine:
    """The words of a command.

    Attributes:
        parser: the command's, which accepted them.
        words: what follows the command's name.
        passed: what follows --, for the program of `launch`.
    """

    parser: argparse.ArgumentParser
    words: Sequence[str] = ()
    passed: Sequence[str] = ()

    def typed(self) -> dict[str, tuple[str, ...]]:
        """Each flag that was typed, with its values, by its place; only the last use of one that does not repeat."""
        by_name = actions_by_name(self.parser)
        found: dict[str, tuple[str, ...]] = {}
        place = ""
        for word in self.words:
            # A name, perhaps with =VALUE, or -nVALUE. No value looks like a flag: argparse would take it for one.
            name = word.partition("=")[0]
            action = by_name.get(name) or by_name.get(word[:2])
            if action is not None:
                place = place_of(action)
                found[place] = (*(found.get(place, ()) if isinstance(action, Repeating) else ()), word)
            elif place:
                found[place] += (word,)
        return found
