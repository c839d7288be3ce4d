"""docs/options.md: every flag of `serve`, and every argument of `Engine` and of its requests. Made of themselves.

Usage: python -m tests.cli.options_page    (writes the page; a test holds it to the options)
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dflash_local.cli.commands import serve
from dflash_local.engine_options import DEFAULTS, OPTIONS
from dflash_local.option import Option, in_python
from dflash_local.request_options import REQUEST_DEFAULTS, REQUEST_OPTIONS
from dflash_local.sampling import SAMPLING_FIELDS
from tests.tables import markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"
HEAD = """# Options

What can be chosen for a server, for an `Engine` in Python ([python.md](python.md)), and for each request. Every text
here is the one of `dflash-local serve --help`, of `help(EngineOptions)` and `help(Engine.submit)`, or of the OpenAPI
document. This page is made by `python -m tests.cli.options_page`.

## Flags of serve

`chat` and `bench` have those of *models*, *drafting*, *context and batching*, *machine*, *chat template* and
*sampling*, too. The second column is the argument of `Engine`, or, for sampling, the field of `SamplingParams` and of
requests. [serving.md](serving.md) says more about some of them.
"""
OF_ENGINE = """## Arguments of Engine that have no flag
"""
OF_REQUESTS = """## Options of a request

Arguments of `Engine.submit`, `generate`, `stream`, `chat` and `submit_chat`, and what a body calls them over HTTP;
[fields.md](fields.md) has all fields of bodies.
"""


def text() -> str:
    """The page."""
    parts = [HEAD, *_flags(), OF_ENGINE]
    plain = {name: option for name, option in OPTIONS.items() if option.flag is None}
    parts.append(markdown(["argument", "meaning"], [_row(name, option, DEFAULTS) for name, option in plain.items()]))
    rows = []
    for name, option in REQUEST_OPTIONS.items():
        argument, meaning = _row(name, option, REQUEST_DEFAULTS)
        rows.append([argument, f"`{option.body.name or name}`" if option.body else "–", meaning])
    return "\n".join([*parts, OF_REQUESTS, markdown(["argument", "in a body", "meaning"], rows)])


def _flags() -> Iterator[str]:
    with patch.dict("os.environ", clear=True):
        parsers: Any = argparse.ArgumentParser().add_subparsers()
        serve.add_parser(parsers)
    for group in parsers.choices["serve"]._action_groups:
        rows: list[list[str]] = []
        last = None
        for action in group._group_actions:
            if action.help == argparse.SUPPRESS:
                continue
            names, python, meaning, variable = _flag(action)
            if isinstance(action, argparse._StoreFalseAction) and last == action.dest:
                rows[-1][2] += f"; {names}: {meaning}"
            else:
                rows.append([names, python, meaning, variable])
            last = action.dest
        if group.title and rows:
            yield f"### {group.title.capitalize()}\n"
            yield markdown(["flag", "in Python", "meaning", "variable"], rows)


def _flag(action: argparse.Action) -> list[str]:
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    value = action.metavar if action.nargs != 0 else None
    python = action.dest.removeprefix("sampling_")
    known = action.dest in OPTIONS or (action.dest != python and python in SAMPLING_FIELDS)
    meaning = (action.help or "").replace("%%", "%")
    found = re.fullmatch(r"(.*?)(?: \[(\w+)\])?", meaning, re.DOTALL)
    assert found
    variable = f"`{found[2]}`" if found[2] else ""
    return [f"{names} {value}" if value else names, f"`{python}`" if known else "–", found[1], variable]


def _row(name: str, option: Option, defaults: Mapping[str, Any]) -> list[str]:
    return [f"`{name}`", in_python(option, defaults.get(name))]


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
