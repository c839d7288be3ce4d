"""`dflash-local completion`: scripts for shells that complete commands, flags and files."""

from __future__ import annotations

import argparse

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import Flags, argument
from dflash_local.cli.parser_actions import actions_of, commands_of

_DESCRIPTION = """\
Print the script with which a shell completes this command line. Print it again after an update.

switch it on:
  bash   dflash-local completion bash > ~/.local/share/bash-completion/completions/dflash-local
  zsh    dflash-local completion zsh > DIR/_dflash-local      DIR is a folder of $fpath, named before compinit runs
  fish   dflash-local completion fish > ~/.config/fish/completions/dflash-local.fish

or for this shell alone, bash:  source <(dflash-local completion bash)
"""
SHELLS = ("bash", "zsh", "fish")
_MODELS = ("model", "drafter")  # by `dest` in the parser


class CompletionFlags(Flags):
    shell: str = argument("the shell that is to complete", choices=SHELLS)


def add_parser(commands: Commands) -> None:
    add_command(
        commands, "completion", CompletionFlags, run, "complete commands and flags in bash, zsh or fish", _DESCRIPTION
    )


def run(args: CompletionFlags) -> int:
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """The shell's script for all commands; flags for files complete file names."""
    import shtab

    from dflash_local.cli import parser

    root = parser()
    _complete_files(root, shtab.FILE, shtab.DIR)
    return shtab.complete(root, shell)


def _complete_files(parser: argparse.ArgumentParser, files: object, folders: object) -> None:
    for command in commands_of(parser).values():
        _complete_files(command, files, folders)
    for action in actions_of(parser):
        names = str(action.metavar or "")
        if action.choices or action.nargs == 0 or action.dest == "hf_file":  # which is a file of a repository
            continue
        if "DIR" in names or (names == "DRAFTER" and not action.option_strings):
            action.complete = folders  # type: ignore[attr-defined]
        elif action.dest in _MODELS or ".gguf" in names or "FILE" in names or names.endswith("TREE"):
            action.complete = files  # type: ignore[attr-defined]
