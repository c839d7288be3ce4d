"""Presets: llama-server's INI file. A section is a model, a key a flag without its dashes or a flag's variable."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dflash_local.errors import RequestError
from dflash_local.server.router.model import STOP_TIMEOUT, canonical_name

PARAM = "--models-preset"
EVERY = "*"  # the section whose keys hold for all models
_TOP = "top of the file"
_ON = ("on", "enabled", "true", "1")


@dataclass(frozen=True)
class Preset:
    """A section. `pairs` are its flags, `written` is all of it; the rest are keys that no flag has."""

    pairs: Mapping[str, str] = field(default_factory=dict)
    on_startup: bool = False
    dedup_cache: bool = False
    stop_timeout: float = STOP_TIMEOUT
    written: Mapping[str, str] = field(default_factory=dict)


def read_presets(path: Path) -> tuple[Preset, dict[str, Preset]]:
    """The section EVERY, and those of models in the file's order, with EVERY's keys where they have none.

    Raises:
        RequestError: the file cannot be read, or is no such file.
    """
    sections = _sections(path)
    every = sections.pop(EVERY, {})
    models = {name: _preset(name, {**every, **pairs}, pairs) for name, pairs in sections.items()}
    return _preset(EVERY, every, every), models


def _sections(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(
        delimiters=("=",), comment_prefixes=(";", "#"), inline_comment_prefixes=(";", "#"), default_section="\0"
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        # llama-server takes an indented line as a line of its own; Python would append it to the one before.
        lines = "\n".join(line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines())
        parser.read_string(f"[{_TOP}]\n{lines}", str(path))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        why = str(error).replace("\n", " ")
        raise RequestError(
            f"cannot read {path}: {why}", param=PARAM, hint="see 'Several models' in docs/serving.md"
        ) from None
    top = set(parser[_TOP]) - {"version"}
    if top:
        raise RequestError(
            f"{path}: {min(top)} is above the first section",
            param=PARAM,
            hint=f"put it below [{EVERY}], or below a model",
        )
    sections: dict[str, dict[str, str]] = {}
    for name in parser.sections()[1:]:  # below the top
        called = canonical_name(name.strip())
        if called in sections:
            raise RequestError(
                f"{path}: [{name}] is the name of another section, too", param=PARAM, hint="put its keys into that one"
            )
        sections[called] = dict(parser[name])
    return sections


def key_of(written: str) -> str:
    """A key as flags have it."""
    return written if written.startswith("LLAMA_") else written.replace("_", "-")


def _preset(name: str, pairs: Mapping[str, str], own: Mapping[str, str]) -> Preset:
    flags = {key_of(key): value for key, value in pairs.items()}
    flags.pop("version", None)  # of the format; llama-server skips it in each section
    seconds = flags.pop("stop-timeout", None)
    return Preset(
        on_startup=flags.pop("load-on-startup", "").lower() in _ON,
        dedup_cache=flags.pop("dedup-cache-models", "").lower() in _ON,
        stop_timeout=STOP_TIMEOUT if seconds is None else _seconds(name, seconds),
        pairs=flags,
        written=own,
    )


def _seconds(section: str, text: str) -> float:
    with suppress(ValueError, OverflowError):
        if (seconds := float(int(text))) >= 0:
            return seconds
    raise RequestError(
        f"[{section}] stop-timeout must be a number of seconds, got {text!r:.80}", param=PARAM, hint="give 10, say"
    )
