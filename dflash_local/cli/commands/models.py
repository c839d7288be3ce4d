"""`dflash-local models`: list the models that are on this computer, and how to serve each."""

from __future__ import annotations

import json
from dataclasses import asdict

from dflash_local.cli.command import Commands, add_command
from dflash_local.cli.flags.flag import Flags, flag
from dflash_local.cli.terminal.model_list import rows_of, table
from dflash_local.cli.terminal.notes import visible

_DESCRIPTION = """\
List the models on this computer, of Ollama, LM Studio, llama.cpp, Jan, GPT4All, text-generation-webui, the Hugging Face
cache, our own and this folder: for each its drafter, and the command that serves it, in place and without copying.

-m of 'serve', 'launch', 'chat', 'bench', 'plan', 'doctor' and 'train' takes these names, or the beginning of one
(docs/models.md).
"""


class ModelsFlags(Flags):
    all: bool = flag("--all", "also files that cannot be served, with the reason")
    json: bool = flag("--json", "print everything as JSON")


def add_parser(commands: Commands) -> None:
    add_command(commands, "models", ModelsFlags, run, "list the models that are on this computer", _DESCRIPTION)


def run(args: ModelsFlags) -> int:
    from dflash_local.hub.local_models import find_models

    found = find_models()
    rows = rows_of(found)
    if args.json:
        left_out = [{**asdict(one), "path": str(one.path.absolute())} for one in found.left_out]
        print(json.dumps({"models": [row.to_json() for row in rows], "left_out": left_out}, indent=1))
        return 0
    print("\n".join(table(rows)) if rows else "no models found; 'dflash-local pull USER/NAME:QUANT' downloads one")
    if args.all:
        for one in found.left_out:
            print(visible(f"left out: {one.name} ({one.program}): {one.why}"))
    elif found.left_out:
        print(f"left out: {len(found.left_out)}; --all says why")
    return 0
