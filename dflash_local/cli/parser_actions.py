"""The actions of a parser, and the variables of each. argparse has public methods that add actions and commands, but
none that lists them: only this module reads its private attributes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from weakref import WeakKeyDictionary

_VARIABLES: WeakKeyDictionary[argparse.Action, tuple[str, ...]] = WeakKeyDictionary()


def actions_of(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """All of them, in the order in which they were added; also those of groups."""
    return parser._actions


def actions_by_name(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Those of flags, by each of their names."""
    return {name: action for action in parser._actions for name in action.option_strings}


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Its commands' parsers, by name."""
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: command for action in found for name, command in action.choices.items()}


def set_variables(action: argparse.Action, names: tuple[str, ...]) -> None:
    """Note the environment variables that set a flag."""
    _VARIABLES[action] = names


def variables_of(action: argparse.Action) -> tuple[str, ...]:
    """The environment variables that set a flag."""
    return _VARIABLES.get(action, ())


def place_of(action: argparse.Action) -> str:
    """The `dest` of a flag; one without a `dest` goes by its first name."""
    return action.option_strings[0] if action.dest == argparse.SUPPRESS and action.option_strings else action.dest
