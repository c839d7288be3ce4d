"""CommandLine: what was typed, as words."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dflash_local.cli.flags.flag import Repeating
from dflash_local.cli.parser_actions import actions_by_name, place_of
from dflash_local.server_address import shown_address

SECRETS = ("-hft", "--hf-token", "--api-key")  # flags whose values are not for others


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


def shown_words(words: Iterable[str]) -> list[str]:
    """Words of a command line as a shell takes them, without secrets: "..." stands for one, and URLs have no users."""
    shown: list[str] = []
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag in SECRETS and equals:
            shown.append(flag + "=...")
        elif shown and shown[-1] in SECRETS:
            shown.append("...")
        else:
            shown.append(shlex.quote(shown_address(word) if "://" in word else word))
    return shown
