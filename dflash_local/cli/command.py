"""Command: a command's parser, its flags, and what runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from dflash_local.cli.flags.command_line import CommandLine
from dflash_local.cli.flags.flag import F, add_flags


class Commands(Protocol):
    """What `add_subparsers` returns."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser: ...


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
    has several lines, else broken to fit. Flags are written whole: who hides a secret knows them by their names."""
    as_it_is = "\n" in description + options.get("epilog", "")
    options["formatter_class"] = argparse.RawDescriptionHelpFormatter if as_it_is else argparse.HelpFormatter
    parser = commands.add_parser(name, help=summary, description=description, allow_abbrev=False, **options)
    parser.set_defaults(command=Command(parser, flags, run))
    add_flags(parser, flags)
    return parser
