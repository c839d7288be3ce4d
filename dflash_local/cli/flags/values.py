"""Values of flags: parsers for argparse, and the files and JSON that a flag names."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dflash_local.errors import RequestError

Number = TypeVar("Number", int, float)


def truth(value: str) -> bool:
    """llama.cpp's spelling of on and off."""
    if value.lower() in ("on", "enabled", "true", "1"):
        return True
    if value.lower() in ("off", "disabled", "false", "0"):
        return False
    raise argparse.ArgumentTypeError(f"must be on or off, got {value!r}")


def path(text: str) -> Path:
    """A path. An empty one would be the current folder's, which nobody means."""
    if not text:
        raise argparse.ArgumentTypeError("is empty, must be a path (the current folder is .)")
    return Path(text)


def path_text(text: str) -> str:
    """The same as text, for what is one all the way to another library."""
    return str(path(text))


def on_off_auto(text: str) -> str:
    """llama.cpp's spelling of on, off and auto."""
    return "auto" if text in ("auto", "-1") else ("on" if truth(text) else "off")


def count(low: int = 0) -> Callable[[str], int]:
    """An integer of at least `low`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}") from None
        if number < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}, got {number}")
        return number

    return parse


def amount(high: float = math.inf) -> Callable[[str], float]:
    """A number from 0 to `high`."""
    wanted = "a number, 0 or more" if math.isinf(high) else f"a number between 0 and {high:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (0 <= value <= high and value < math.inf):
            raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
        return value

    return parse


def numbers(kind: Callable[[str], Number]) -> Callable[[str], tuple[Number, ...]]:
    """Comma-separated numbers of this kind."""

    def parse(text: str) -> tuple[Number, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be numbers separated by commas, got {text!r}") from None

    return parse


def one_of(*names: str) -> Callable[[str], str]:
    """One of `names`; unlike `choices`, this also checks environment variables."""

    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(names)}, got {text!r}")
        return text

    return parse


def read_text(path: Path, param: str) -> str:
    """The text of a flag's file, without the mark that Windows' editors put before it. Raises RequestError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {path}: {error}", param=param, hint=f"give {param} a text file") from None


def write_text(path: Path, text: str, param: str) -> None:
    """Write a flag's file. Raises RequestError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = f"name another file: {param} FILE"
        raise RequestError(f"cannot write {path}: {error.strerror}", param=param, hint=hint) from None


def json_object(text: str, param: str) -> dict[str, Any]:
    """A flag's JSON object. Raises RequestError."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{param} is not valid JSON: {error}", param=param) from None
    if not isinstance(value, dict):
        raise RequestError(f"{param} must be a JSON object", param=param)
    return value
