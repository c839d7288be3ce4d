"""The output of `dflash-local` without a command: what is here, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dflash_local import __version__
from dflash_local.cli.terminal.notes import visible

MOST_LISTED = 8
_DEMO = ("dflash-local demo", "talk to a small model that is part of the package")
_PULL = ("dflash-local serve -hf unsloth/Qwen3-8B-GGUF:Q4_K_M", "download a model (5 GB) with its drafter, serve both")


@dataclass(frozen=True)
class Row:
    """A model in the list: its flags for `serve`, its known drafter, and whether that is on this disk."""

    name: str
    place: str
    size: int
    flags: tuple[str, ...]
    drafter: str = ""
    is_here: bool = False


def greet() -> None:
    """Print it. Never fails because of files in the caches."""
    build = _build()
    rows = _rows()
    print(f"dflash-local {__version__}: quantized GGUF models several times faster, with the same output\n")
    print(f"build    {build or 'none yet: llama.cpp must be compiled once'}")
    print(*_model_lines(rows), "", sep="\n")
    following = _next(build is not None, rows)
    print("next", *(visible(f"  {command:<52}  {does}") for command, does in following), sep="\n")


def _build() -> str | None:
    """The installed build, in words; None if there is none."""
    from dflash_local.build.installation import installed_stamp

    stamp = installed_stamp()
    return f"llama.cpp for {stamp.get('backend')}, {stamp.get('version')}" if stamp else None


def _rows() -> list[Row]:
    from dflash_local.hub.local_models import local_models

    with suppress(OSError):
        rows = [_row(model.name, model.place, model.size, model.path, model.is_named) for model in local_models()]
        return sorted(rows, key=_order)
    return []


def _order(row: Row) -> tuple[object, ...]:
    """Sort models with a drafter first, among them those whose drafter is here, then models for `-hf`."""
    return not row.drafter, not row.is_here, row.flags[0] != "-hf", row.name.lower()


def _row(name: str, place: str, size: int, path: Path, is_named: bool) -> Row:
    from dflash_local.errors import HubError
    from dflash_local.hub import registry
    from dflash_local.hub.cache import Cache, cache_root

    drafter = None
    with suppress(HubError):  # the user's own list is wrong; `pairs` reports that
        known = registry.by_file_name(registry.known_targets(), name.partition(":")[0].rpartition("/")[2])
        drafter = next((one for one in known.drafters if not one.refused), None) if known else None
    flags: tuple[str, ...] = ("-hf", name) if is_named else ("-m", str(path))
    if drafter is None:
        return Row(name, place, size, flags)
    if not is_named:  # -hf finds the drafter itself
        flags = (*flags, "-hfd", str(drafter))
    is_here = bool(Cache(cache_root()).files(drafter.repository, drafter.revision))
    return Row(name, place, size, flags, str(drafter), is_here)


def _model_lines(rows: Sequence[Row]) -> Iterator[str]:
    from dflash_local.words import file_size_text

    if not rows:
        yield "models   none found (Hugging Face cache, llama.cpp, LM Studio, Ollama, this folder)"
        return
    yield f"models   {len(rows)} found"
    width = min(max(len(row.name) for row in rows[:MOST_LISTED]), 60)
    for row in rows[:MOST_LISTED]:
        drafter = f"drafter {row.drafter}{'' if row.is_here else ', to be downloaded'}" if row.drafter else ""
        yield visible(f"  {row.name:<{width}}  {file_size_text(row.size):>9}  {row.place:<18}  {drafter}".rstrip())
    if len(rows) > MOST_LISTED:
        yield f"  and {len(rows) - MOST_LISTED} more"


def _next(is_built: bool, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Commands, and what each does."""
    if not is_built:
        yield "dflash-local build", "compile it (a C++ compiler, the network, some minutes)"
    if rows and rows[0].drafter:
        yield shlex.join(("dflash-local", "serve", *rows[0].flags)), "serve it: chat page and OpenAI endpoint"
        yield shlex.join(("dflash-local", "chat", *rows[0].flags)), "chat here"
        yield _DEMO
    else:
        yield _DEMO
        yield _PULL
        yield "dflash-local pairs", "models that a drafter is known for"
    yield "dflash-local doctor", "is everything as it should be?"
    yield "dflash-local --help", "all commands"
