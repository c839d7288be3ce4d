"""CommandParser: a parser of command lines whose errors advise."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from dflash_local.cli.closest_word import closest
from dflash_local.cli.parser_actions import actions_by_name, commands_of
from dflash_local.cli.typed_path import exists
from dflash_local.errors import DFlashError

_NUMBER_JOINED = re.compile(r"-[A-Za-z]-?[\d.,]+")  # -c4096
_OF_HUB = ("-hf", "-hfr", "--hf-repo")
DOWNLOAD = "'dflash-local pull USER/NAME:QUANT' downloads a model, and prints where it is"


class UsageError(DFlashError):
    """A command line that no command understands. Ends with status 2."""


class CommandParser(argparse.ArgumentParser):
    """An argparse parser with errors of two lines, like all others here. Subcommands have their own."""

    def parse_args(self, args: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """Like argparse's, but unrecognized arguments are reported for the command that was typed."""
        command = self._command(args)
        if (unknown := command._split_by_argparse(args)) is not None:
            command._refuse([unknown])
        known, left = self.parse_known_args(args)
        if left:
            command._refuse(left)
        return known

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=self._advice(message))

    def _command(self, args: Sequence[str]) -> CommandParser:
        command = commands_of(self).get(args[0]) if args else None
        return command if isinstance(command, CommandParser) else self

    def _split_by_argparse(self, args: Sequence[str]) -> str | None:
        """The first flag of one dash that is unknown. argparse would take -rtr for -r with the value "tr", and -vs for
        -v and -s; only a number may follow its flag at once."""
        known = actions_by_name(self)
        for word in itertools.takewhile(lambda word: word != "--", args):
            name = word.partition("=")[0]
            # argparse takes a word with a blank for a value, unless it begins with a flag.
            is_value = " " in name or (" " in word and name[:2] not in known)
            is_flag = len(name) > 2 and name[0] == "-" and name[1].isalpha() and not is_value
            if is_flag and name not in known and not _NUMBER_JOINED.fullmatch(name):
                return name  # its value may be a secret
        return None

    def _refuse(self, left: Sequence[str]) -> NoReturn:
        first = left[0]
        # What follows a flag may be its value, and a secret.
        before = itertools.takewhile(lambda word: not word.startswith("-"), left)
        flags = [word.partition("=")[0] for word in left if word.startswith("-")]
        message = f"unrecognized arguments: {' '.join([*before, *flags])}"
        if first.startswith("-"):
            raise UsageError(message, hint=self._instead_of(first.partition("=")[0]))
        model = self._model_flags(first)
        raise UsageError(message, hint=f"{self.prog} {model}" if model else self._see())

    def _instead_of(self, name: str) -> str:
        """Advice about a flag that the command does not have."""
        if name in _OF_HUB:
            return "dflash-local serve -hf USER/NAME:QUANT" if commands_of(self) else DOWNLOAD
        flags = actions_by_name(self)
        shown = [flag for flag, action in flags.items() if len(flag) > 2 and action.help != argparse.SUPPRESS]
        close = f"-{name}" if f"-{name}" in flags else closest(name, shown)
        return f"did you mean {close}? {self._see()}" if close else self._see()

    def _model_flags(self, text: str) -> str:
        """The missing flag and the model, if `text` is a model without its flag and the command has such a flag; else
        ""."""
        if "-m" not in actions_by_name(self):
            return ""
        if text.endswith(".gguf"):
            return f"-m {text}"
        return f"-hf {text}" if text.count("/") == 1 and not exists(Path(text)) else ""

    def _advice(self, message: str) -> str:
        """Advice for an error message of argparse."""
        commands = commands_of(self)
        if not commands:
            return self._see()
        wanted = message.partition("invalid choice: ")[2].partition(" (choose from")[0].strip("'\"")
        if wanted.endswith(".gguf"):
            return f"dflash-local serve -m {wanted}"
        close = closest(wanted, [*commands])
        return f"did you mean 'dflash-local {close}'? {self._see()}" if close else self._see()

    def _see(self) -> str:
        what = "the commands" if commands_of(self) else "what it takes"
        return f"'{self.prog} --help' lists {what}"
