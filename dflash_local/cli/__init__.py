"""The `dflash-local` command: finds the command's module, runs it, and prints an error as two readable lines."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from dflash_local import __version__
from dflash_local.cli.command import Command
from dflash_local.cli.command_parser import CommandParser, UsageError
from dflash_local.cli.terminal.console import set_up_console
from dflash_local.cli.terminal.notes import error_text
from dflash_local.errors import DFlashError

# Each command is the module of its name in commands/ (rpc-server: rpc_server). It has `add_parser(commands)` and
# `run(args) -> int`, whose argument is of the command's class of Flags; the work itself is elsewhere in the package.
# Heavy imports are inside `run`, and only the module of the typed command is imported, so that `--help` and `build`
# start at once.
COMMANDS = (
    "serve", "launch", "chat", "demo", "models", "pull", "pairs", "convert", "quantize", "train", "bench", "plan",
    "doctor", "rpc-server", "build", "wheel", "patch", "completion",
)  # fmt: skip

EPILOG = """\
a first session ('dflash-local' alone says what is here):
  dflash-local build                                      compile the patched llama.cpp, once
  dflash-local serve -hf unsloth/Qwen3-8B-GGUF:Q4_K_M     a model by name, with its drafter
  dflash-local convert DRAFTER_DIR --target TARGET.gguf   Hugging Face drafter -> GGUF
  dflash-local serve -m TARGET.gguf -md DRAFTER.gguf      OpenAI endpoint on port 8080
  dflash-local launch claude -m TARGET.gguf               Claude Code, Codex, ... on a local model
  dflash-local plan -m TARGET.gguf -md DRAFTER.gguf       what goes where, and the largest context
  dflash-local doctor -m TARGET.gguf -md DRAFTER.gguf     if something looks wrong or slow

'dflash-local COMMAND --help' explains each command.
"""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Commands are indented deeper than flags, which older versions of argparse ignore when they compute the column
    width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = max(map(len, COMMANDS)) + 2 * self._indent_increment


def parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    root = CommandParser(
        prog="dflash-local",
        description="Quantized GGUF models, several times faster and with the same output, by DFlash speculative "
        "decoding.",
        epilog=EPILOG,
        formatter_class=_Formatter,
    )
    root.add_argument("--version", action="version", version=f"dflash-local {__version__}")
    subparsers = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in commands:
        import_module(f"dflash_local.cli.commands.{name.replace('-', '_')}").add_parser(subparsers)
    return root


def parse(argv: Sequence[str]) -> tuple[Command[Any], Any]:
    """The command of a line, and the values of its flags. Raises UsageError."""
    argv, passed = _split(argv)
    namespace = parser(argv[:1] if argv[0] in COMMANDS else COMMANDS).parse_args(argv)
    command: Command[Any] = namespace.command
    return command, command.read(namespace, argv[1:], passed)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0 success, 1 failure (the error is on stderr), 130 interrupted. Usage
    errors exit with 2."""
    set_up_console()
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # while a closed pipe can still be told from a fault
    except BrokenPipeError:
        return _reader_left()


def _run(argv: Sequence[str]) -> int:
    try:
        if not argv:
            from dflash_local.cli.terminal.greeting import greet

            greet()
            return 0
        gc.disable()  # what parsing imports and makes stays: Python would look through it again and again
        try:
            command, args = parse(argv)
        finally:
            gc.enable()
        return command.run(args)
    except DFlashError as error:
        print(error_text(error), file=sys.stderr)
        if isinstance(error, UsageError):
            sys.exit(2)
        return 1
    except KeyboardInterrupt:
        return 130


def _reader_left() -> int:
    """Whoever read our output wants no more of it: end as a program does that SIGPIPE ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try again at its end
    return 128 + 13


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our arguments, spelled as the parser has them, and those that `launch` passes on, which come after --."""
    argv = list(argv)
    end = argv.index("--") if argv[:1] == ["launch"] and "--" in argv else len(argv)
    return [_spelled(arg) for arg in argv[:end]], argv[end + 1 :]


def _spelled(arg: str) -> str:
    """Replace _ by - in a flag, as llama.cpp does; no value begins with two dashes."""
    flag, equals, value = arg.partition("=")
    return flag.replace("_", "-") + equals + value if arg.startswith("--") else arg
