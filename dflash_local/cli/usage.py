"""Commands and their parser, with advice in its errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol

from dflash_local.cli.flags.command_line import CommandLine
from dflash_local.cli.flags.flag import F, add_flags
from dflash_local.cli.parser_actions import actions_by_name, commands_of
from dflash_local.errors import DFlashError


class Commands(Protocol):
    """What `add_subparsers` returns."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser: ...


class UsageError(DFlashError):
    """A command line that no command understands. Ends with status 2."""


@dataclass(frozen=True)
class Command(Generic[F]):
    """A command: its parser, the class of its flags, and the function that runs it."""

    parser: argparse.ArgumentParser
    flags: type[F]
    run: Callable[[F], int]

    def read(self, namespace: argparse.Namespace, words: Sequence[str], passed: Sequence[str]) -> F:
        """The values of its flags. Of the fields `line` and `typed`, if there are any, the first is what was typed:
        `words`, and `passed` after --; the second is `line.typed()`."""
        line = CommandLine(self.parser, words, passed)
        return self.flags.of({**vars(namespace), "line": line, "typed": line.typed()})


def add_command(
    commands: Commands,
    name: str,
    flags: type[F],
    run: Callable[[F], int],
    summary: str,
    description: str,
    **options: Any,
) -> argparse.ArgumentParser:
    """A command's parser, with the flags that its class declares itself. Its texts are shown as they are if one of them
    has several lines, else broken to fit."""
    as_it_is = "\n" in description + options.get("epilog", "")
    options["formatter_class"] = argparse.RawDescriptionHelpFormatter if as_it_is else argparse.HelpFormatter
    parser = commands.add_parser(name, help=summary, description=description, **options)
    parser.set_defaults(command=Command(parser, flags, run))
    add_flags(parser, flags)
    return parser


class Parser(argparse.ArgumentParser):
    """An argparse parser with errors of two lines, like all others here. Subcommands have their own."""

    def parse_args(self, args: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """Like argparse's, but unrecognized arguments are reported for the command that was typed."""
        known, left = self.parse_known_args(args)
        if left:
            self._command(args)._refuse(left)
        return known

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=self._advice(message))

    def _command(self, args: Sequence[str]) -> Parser:
        command = commands_of(self).get(args[0]) if args else None
        return command if isinstance(command, Parser) else self

    def _refuse(self, left: Sequence[str]) -> NoReturn:
        first = left[0]
        message = f"unrecognized arguments: {' '.join(left)}"
        if first.startswith("-"):
            known = [flag for flag, action in actions_by_name(self).items() if action.help != argparse.SUPPRESS]
            close = get_close_matches(first.partition("=")[0], known, 1)
            raise UsageError(message, hint=f"did you mean {close[0]}? {self._see()}" if close else self._see())
        flags = self._model_flags(first)
        raise UsageError(message, hint=f"{self.prog} {flags}" if flags else self._see())

    def _model_flags(self, text: str) -> str:
        """The missing flag and the model, if `text` is a model without its flag and the command has such a flag; else
        ""."""
        if "-m" not in actions_by_name(self):
            return ""
        if text.endswith(".gguf"):
            return f"-m {text}"
        return f"-hf {text}" if text.count("/") == 1 and not Path(text).exists() else ""

    def _advice(self, message: str) -> str:
        """Advice for an error message of argparse."""
        commands = commands_of(self)
        if not commands:
            return self._see()
        wanted = message.partition("invalid choice: ")[2].partition(" (choose from")[0].strip("'\"")
        if wanted.endswith(".gguf"):
            return f"dflash-local serve -m {wanted}"
        close = get_close_matches(wanted, commands, 1)
        return f"did you mean 'dflash-local {close[0]}'? {self._see()}" if close else self._see()

    def _see(self) -> str:
        what = "the commands" if commands_of(self) else "what it takes"
        return f"'{self.prog} --help' lists {what}"
