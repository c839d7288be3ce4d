"""Model: one that the router can load, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dflash_local.media.abilities import NO_MEDIA, Abilities
from dflash_local.server.shapes.router import Source

# A flag's place in the parser -> the flag as it is typed, with its value. Of two flags with one place the later counts.
Options = Mapping[str, tuple[str, ...]]

# Seconds in which a model that is being unloaded may finish its answers.
STOP_TIMEOUT = 10.0
_TAG = re.compile(r"(?:.*[-.])?([A-Za-z0-9_]+)")


def value_of(options: Options, place: str) -> str | None:
    """A flag's value; None if it is not given."""
    words = options.get(place)
    if not words:
        return None
    return words[1] if len(words) > 1 else words[0].partition("=")[2]


def canonical_name(name: str) -> str:
    """USER/NAME:quant -> USER/NAME:QUANT, as models of the cache are called; other names stay as they are."""
    head, _, tag = name.rpartition(":")
    match = _TAG.fullmatch(tag)
    return f"{head}:{match[1].upper()}" if match and head.count("/") == 1 else name


def names_of(options: Options, place: str) -> tuple[str, ...]:
    """The names that a flag lists; empty if it is not given."""
    listed = (value_of(options, place) or "").split(",")
    return tuple(sorted({name.strip() for name in listed} - {""}))


@dataclass(frozen=True)
class Model:
    """A name that clients may ask for.

    Attributes:
        source: where it was found: cache, models_dir or preset, as llama-server says it.
        options: flags of its instance, without the router's own.
        aliases, tags: more names; words that mean nothing to the router.
        preset: the section of the file of presets, as it is written there, without secrets; None: there is none.
        hidden: not listed, because a preset stands for it.
        on_startup: loaded when the router starts.
        stop_timeout: seconds that its running answers have when it is unloaded.
        path: its file, or the first part of it, where that is known.
        abilities: which media it reads, by the header of its projector, where that is known.
    """

    name: str
    source: Source
    options: Options = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    preset: str | None = None
    hidden: bool = False
    on_startup: bool = False
    stop_timeout: float = STOP_TIMEOUT
    path: Path | None = None
    abilities: Abilities = NO_MEDIA

    @property
    def arguments(self) -> list[str]:
        """The command line of its instance, without the router's own flags."""
        return [word for words in self.options.values() for word in words]


class Flags(Protocol):
    """What the router needs to know about the flags of `serve`; the command line knows it."""

    def options(self, pairs: Mapping[str, str], section: str) -> dict[str, tuple[str, ...]]:
        """Flags from the keys and values of a section. Raises RequestError that names both."""

    def has_model(self, options: Options) -> bool:
        """Whether they say which model is meant."""

    def is_own(self, key: str) -> bool:
        """Whether the router decides what a key of a section says, so that it has no effect there."""

    def with_files(
        self, model: Path, drafter: Path | None = None, projector: Path | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Flags that name a target, its drafter and its projector."""
