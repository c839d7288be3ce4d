"""The `dflash-local` command: finds the subcommand's module, runs it, turns errors into two readable lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from dflash_local import __version__
from dflash_local.errors import DFlashError

# Each module has `add_parser(subparsers)`, which sets `func=run`, and `run(args) -> int`. Their heavy imports are
# inside `run`, and only the module of the command that was typed is imported at all, so that `--help` and `build` start
# at once.
COMMANDS = {
    "serve": "dflash_local.server.cli",
    "chat": "dflash_local.cli.chat",
    "demo": "dflash_local.demo",
    "convert": "dflash_local.convert.cli",
    "bench": "dflash_local.cli.bench",
    "doctor": "dflash_local.diagnose.doctor",
    "build": "dflash_local.build.wheel",
    "patch": "dflash_local.build.patch_command",
}

EPILOG = """\
a first session:
  dflash-local build                                      compile the patched llama.cpp, once
  dflash-local convert DRAFTER_DIR --target TARGET.gguf   Hugging Face drafter -> GGUF
  dflash-local serve -m TARGET.gguf -md DRAFTER.gguf      OpenAI endpoint on port 8080
  dflash-local doctor -m TARGET.gguf -md DRAFTER.gguf     if something looks wrong or slow

'dflash-local COMMAND --help' explains each command.
"""


def parser(commands: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser with the given subcommands."""
    root = argparse.ArgumentParser(
        prog="dflash-local",
        description="Quantized GGUF models, several times faster and with the same output, by DFlash speculative decoding.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"dflash-local {__version__}")
    subparsers = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in commands:
        import_module(COMMANDS[name]).add_parser(subparsers)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0 done, 1 failed (the error is on stderr), 130 interrupted; usage
    errors exit with 2."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        args = parser(argv[:1] if argv and argv[0] in COMMANDS else tuple(COMMANDS)).parse_args(argv)
        return int(args.func(args))
    except DFlashError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  fix: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
