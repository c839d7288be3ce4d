"""The output of `dflash-local` without a command: what is here, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from dflash_local import __version__
from dflash_local.cli.terminal.model_list import Row, rows_of, table
from dflash_local.cli.terminal.notes import visible

MOST_LISTED = 8
_DEMO = ("dflash-local demo", "talk to a small model that is part of the package")
_PULL = ("dflash-local serve -hf unsloth/Qwen3-8B-GGUF:Q4_K_M", "download a model (5 GB) with its drafter, serve both")


def greet() -> None:
    """Print it. Never fails because of files in the caches."""
    from dflash_local.hub.local_models import find_models

    build = _build()
    found = find_models()
    rows = rows_of(found)
    print(f"dflash-local {__version__}: quantized GGUF models several times faster, with the same output\n")
    print(f"build    {build or 'none yet: llama.cpp must be compiled once'}")
    print(*_model_lines(rows, len(found.left_out)), "", sep="\n")
    following = _next(build is not None, rows)
    print("next", *(visible(f"  {command:<52}  {does}") for command, does in following), sep="\n")


def _build() -> str | None:
    """The installed build, in words; None if there is none."""
    from dflash_local.build.installed_build import installed_stamp

    stamp = installed_stamp()
    return f"llama.cpp for {stamp.get('backend')}, {stamp.get('version')}" if stamp else None


def _model_lines(rows: Sequence[Row], n_left_out: int) -> Iterator[str]:
    if not rows:
        from dflash_local.hub.model_programs import HERE, HUB, OTHERS

        yield f"models   none found ({', '.join(program.title for program in (HUB, *OTHERS, HERE))})"
    else:
        yield f"models   {len(rows)} found, served where they are"
        yield from table(rows[:MOST_LISTED])
    if len(rows) > MOST_LISTED:
        yield f"  and {len(rows) - MOST_LISTED} more: 'dflash-local models'"
    if n_left_out:
        files = "1 file is" if n_left_out == 1 else f"{n_left_out} files are"
        yield f"  {files} left out: 'dflash-local models --all' says why"


def _next(is_built: bool, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Commands, and what each does."""
    if not is_built:
        yield "dflash-local build", "compile it (a C++ compiler, the network, some minutes)"
    if rows:
        yield rows[0].command, "serve it: chat page and OpenAI endpoint"
        yield shlex.join(("dflash-local", "chat", *rows[0].flags)), "chat here"
    yield _DEMO
    if not (rows and rows[0].drafting.way in ("drafter", "mtp")):
        yield _PULL
        yield "dflash-local pairs", "models that a drafter is known for"
    yield "dflash-local doctor", "is everything as it should be?"
    yield "dflash-local --help", "all commands"
