"""The command line's parser, with advice in its errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, Protocol, overload

from dflash_local.cli.parser_actions import actions_by_name, commands_of


class Commands(Protocol):
    """What `add_subparsers` returns."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser: ...


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    description: str,
    **options: Any,
) -> argparse.ArgumentParser:
    """A command's parser. Its texts are shown as they are if one of them has several lines, else broken to fit."""
    as_it_is = "\n" in description + options.get("epilog", "")
    options["formatter_class"] = argparse.RawDescriptionHelpFormatter if as_it_is else argparse.HelpFormatter
    parser = commands.add_parser(name, help=summary, description=description, **options)
    parser.set_defaults(func=run)
    return parser


class Parser(argparse.ArgumentParser):
    """An argparse parser with errors of two lines, like all others here. Subcommands have their own."""

    @overload  # type: ignore[override]
    def parse_args(self, args: Sequence[str] | None = None) -> argparse.Namespace: ...
    @overload
    def parse_args(self, args: Sequence[str] | None, namespace: Any) -> Any: ...
    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Like argparse's, but unrecognized arguments are reported for the command that was typed."""
        known, left = self.parse_known_args(args, namespace)
        if left:
            self._command(args or ())._refuse(left)
        return known

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        self.refuse(message, self._advice(message))

    def refuse(self, message: str, advice: str) -> NoReturn:
        """End with status 2, with advice."""
        self.exit(2, f"error: {message}\n  fix: {advice}\n")

    def _command(self, args: Sequence[str]) -> Parser:
        command = commands_of(self).get(args[0]) if args else None
        return command if isinstance(command, Parser) else self

    def _refuse(self, left: Sequence[str]) -> NoReturn:
        first = left[0]
        message = f"unrecognized arguments: {' '.join(left)}"
        if first.startswith("-"):
            flags = [flag for flag, action in actions_by_name(self).items() if action.help != argparse.SUPPRESS]
            close = get_close_matches(first.partition("=")[0], flags, 1)
            self.refuse(message, f"did you mean {close[0]}? {self._see()}" if close else self._see())
        if flags_for := self._model_flags(first):
            self.refuse(message, f"{self.prog} {flags_for}")
        self.refuse(message, self._see())

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
