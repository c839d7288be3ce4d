"""The command line's parser, with advice in its errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, overload

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


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
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=description, **options)
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

    def _commands(self) -> dict[str, Any]:
        found = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return {name: command for action in found for name, command in action.choices.items()}

    def _command(self, args: Sequence[str]) -> Parser:
        command = self._commands().get(args[0]) if args else None
        return command if isinstance(command, Parser) else self

    def _refuse(self, left: Sequence[str]) -> NoReturn:
        first = left[0]
        message = f"unrecognized arguments: {' '.join(left)}"
        if first.startswith("-"):
            flags = [flag for flag, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]
            close = get_close_matches(first.partition("=")[0], flags, 1)
            self.refuse(message, f"did you mean {close[0]}? {self._see()}" if close else self._see())
        if flags_for := self._model_flags(first):
            self.refuse(message, f"{self.prog} {flags_for}")
        self.refuse(message, self._see())

    def _model_flags(self, text: str) -> str:
        """The missing flag and the model, if `text` is a model without its flag and the command has such a flag; else
        ""."""
        if "-m" not in self._option_string_actions:
            return ""
        if text.endswith(".gguf"):
            return f"-m {text}"
        return f"-hf {text}" if text.count("/") == 1 and not Path(text).exists() else ""

    def _advice(self, message: str) -> str:
        """Advice for an error message of argparse."""
        commands = self._commands()
        if not commands:
            return self._see()
        wanted = message.partition("invalid choice: ")[2].partition(" (choose from")[0].strip("'\"")
        if wanted.endswith(".gguf"):
            return f"dflash-local serve -m {wanted}"
        close = get_close_matches(wanted, commands, 1)
        return f"did you mean 'dflash-local {close[0]}'? {self._see()}" if close else self._see()

    def _see(self) -> str:
        what = "the commands" if self._commands() else "what it takes"
        return f"'{self.prog} --help' lists {what}"
