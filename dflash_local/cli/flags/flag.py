"""A flag with its environment variable, for any command."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dflash_local.cli.flags.values import truth
from dflash_local.cli.parser_actions import actions_of

AddFlag = Callable[..., object]  # `add_flag` of one group
SILENT = argparse.SUPPRESS  # as a help text: --help leaves the flag out


class FlagGroup(Protocol):
    """An argparse parser or group."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action: ...


def add_flag(
    group: FlagGroup, *names: str, env: str | None = None, off: Sequence[str] = (), off_help: str = "", **options: Any
) -> argparse.Action:
    """`add_argument`, with the environment variable `env` as the default. Names in `off` switch the flag off, and so
    does the variable's LLAMA_ARG_NO_ form, with any value; such a flag is on by default."""
    if off:
        options = {"action": "store_true", "default": True, **options}
    if env and options.get("help"):
        options["help"] += f" [{env}]"
    action = group.add_argument(*names, **options)
    variables = variables_for(env, off)
    action.variables = variables  # type: ignore[attr-defined]  # for `variables_of`
    if options.get("action") == "append":
        action.repeats = True  # type: ignore[attr-defined]  # for `ServeFlags.typed`
    # argparse converts string defaults like typed arguments.
    for variable in variables:
        if (value := os.environ.get(variable)) is not None:
            action.default = value if variable == env else "off"
    if action.nargs == 0:
        action.type = truth
    if off:
        group.add_argument(
            *off, dest=action.dest, action="store_false", default=action.default, help=off_help or SILENT
        )
    return action


def variables_for(env: str | None, off: Sequence[str] = ()) -> tuple[str, ...]:
    """The variables of a flag in llama.cpp: if names switch it off, there is a second one, which takes precedence."""
    if env is None:
        return ()
    return (env, env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")) if off else (env,)


def variables_of(parser: argparse.ArgumentParser) -> set[str]:
    return {name for action in actions_of(parser) for name in getattr(action, "variables", ())}
