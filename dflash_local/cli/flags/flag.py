"""Flags as fields of classes: each with its type, its names and its environment variable.

    class LimitFlags(Flags, title="limits"):
        timeout: int = flag("-to --timeout", "time for a client", env="LLAMA_ARG_TIMEOUT", default=300)

`add_flags` adds a group "limits" with these names to a parser, `LimitFlags.of` makes an instance of what was parsed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, FrozenInstanceError, dataclass, field, fields
from functools import wraps
from inspect import get_annotations
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from dflash_local.cli.command_parser import UsageError
from dflash_local.cli.flags.values import path, path_text, truth
from dflash_local.cli.parser_actions import set_variables

F = TypeVar("F", bound="Flags")
# What argparse is told of a field because of its type, whether or not it may be None.
_BY_TYPE: dict[Any, dict[str, Any]] = {
    bool: {"action": "store_true"},
    int: {"type": int, "metavar": "N"},
    float: {"type": float},
    Path: {"type": path, "metavar": "FILE"},
}
_BY_TYPE |= {kind | None: options for kind, options in _BY_TYPE.items()}
SILENT = argparse.SUPPRESS  # as a help text: --help leaves the flag out


class FlagGroup(Protocol):
    """An argparse parser or group."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action: ...


@dataclass(init=False, repr=False, eq=False)
class Flags:
    """Values of flags, which do not change: a command's class inherits those of the groups that it takes. Subclasses
    are dataclasses, too.

    Fields are declared by `flag`, `argument` or `gathered`; one that has none of them is that of another class, or an
    option of the engine. `title` and `text` are of the group in --help; without a title the flags are in the command's
    own.
    """

    title: ClassVar[str]
    text: ClassVar[str | None]

    def __init_subclass__(cls, title: str = "", text: str | None = None) -> None:
        cls.title, cls.text = title, text
        # Methods that `dataclass` writes are compiled at every start, for each class: that takes longer than to parse
        # a command line of all flags.
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __setattr__(self, name: str, _value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    @classmethod
    def of(cls: type[F], values: Mapping[str, Any]) -> F:
        """From values by `dest`, of which there may be more."""
        return cls(**{spec.name: _value(spec, values) for spec in fields(cls)})


def _value(spec: Field[Any], values: Mapping[str, Any]) -> Any:
    dests = spec.metadata.get("dests")
    if dests is None or spec.name in values:
        return values[spec.name]
    return {name: values[dest] for name, dest in dests.items() if dest in values}


def flag(
    names: str, text: str, *, off: str = "", also: Mapping[str, dict[str, Any]] | None = None, **options: Any
) -> Any:
    """A field that is a flag.

    Args:
        names: separated by blanks.
        text: its help; SILENT leaves it out.
        off: names that switch it off.
        also: options of further flags that set the field, by their names.
        options: of `add_flag`. What the field's type says is left out: a bool is a switch, an int N, a Path FILE.
    """
    return field(metadata={"flags": {names: {**options, "off": off.split(), "help": text}, **(also or {})}})


def argument(text: str, **options: Any) -> Any:
    """A field that is a positional argument."""
    return flag("", text, **options)


def gathered(dests: Mapping[str, str], flags: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
    """A field that maps names to the values of flags that are not fields; `dests` are theirs in the parser. `flags` are
    the options of those that are added with the class, by their names."""
    return field(metadata={"dests": dests, "flags": flags or {}})


def add_flags(parser: argparse.ArgumentParser, *owners: type[Flags]) -> None:
    """Add what each of these classes declares itself, under its title."""
    for owner in owners:
        add_fields(parser.add_argument_group(owner.title, owner.text) if owner.title else parser, owner)


def add_fields(group: FlagGroup, owner: type[Flags], *names: str) -> None:
    """Add the flags that a class declares itself, or those of these fields."""
    for name, kind in declared(owner).items():
        for flags, options in owner.__dataclass_fields__[name].metadata["flags"].items():
            if not names or name in names:
                by_type = {} if "action" in options else _BY_TYPE.get(kind, {})
                add_flag(group, *flags.split(), **{"dest": name, **by_type, **options})


def declared(owner: type[Flags]) -> dict[str, Any]:
    """The types of the flags that a class declares itself, by field."""
    kinds = get_annotations(owner, eval_str=True)
    return {spec.name: kinds[spec.name] for spec in fields(owner) if spec.name in kinds and "flags" in spec.metadata}


def titled(owner: type[Flags]) -> list[type[Flags]]:
    """The bases of a class that are groups of their own in --help, in this order."""
    return [base for base in owner.mro() if getattr(base, "title", "")]


def add_flag(
    group: FlagGroup, *names: str, env: str | None = None, off: Sequence[str] = (), off_help: str = "", **options: Any
) -> None:
    """`add_argument`, with the environment variable `env` as the default; one that is empty names no path. Names in
    `off` switch the flag off, and so does the variable's LLAMA_ARG_NO_ form, with any value; such a flag is on by
    default."""
    if off:
        options = {"action": "store_true", "default": True, **options}
    if env and options.get("help"):
        options["help"] += f" [{env}]"
    action = group.add_argument(*names, **options)
    variables = variables_for(env, off)
    set_variables(action, variables)
    # argparse converts string defaults like typed arguments.
    for variable in variables:
        value = os.environ.get(variable)
        if value or (value is not None and action.type not in (path, path_text)):
            action.default = _FromVariable(value if variable == env else "off", variable)
    if action.nargs == 0:
        action.type = truth
    if isinstance(action.default, _FromVariable):
        action.type = _naming_variables(action.type if callable(action.type) else str)
    if off:
        group.add_argument(
            *off, dest=action.dest, action="store_false", default=action.default, help=off_help or SILENT
        )


class _FromVariable(str):
    """A default that is the value of an environment variable."""

    variable: str

    def __new__(cls, value: str, variable: str) -> _FromVariable:
        text = super().__new__(cls, value)
        text.variable = variable
        return text


def _naming_variables(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """`kind`, whose errors name the variable that a value comes from: nobody has typed its flag."""

    @wraps(kind)
    def convert(text: str) -> Any:
        if not isinstance(text, _FromVariable):
            return kind(text)
        try:
            return kind(str(text))
        except (argparse.ArgumentTypeError, ValueError) as error:
            hint = f"correct or unset {text.variable}"
            raise UsageError(f"the variable {text.variable} is wrong: {error}", hint=hint) from None

    return convert


def variables_for(env: str | None, off: Sequence[str] = ()) -> tuple[str, ...]:
    """The variables of a flag in llama.cpp: if names switch it off, there is a second one, which takes precedence."""
    if env is None:
        return ()
    return (env, env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")) if off else (env,)


class Repeating(argparse.Action):
    """A flag of which all uses count, not only the last."""


class Joined(Repeating):
    """A list joined with commas, to which each use of the flag appends; the first use replaces the default."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _name: str | None = None) -> None:
        held = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if held is self.default else f"{held},{values}")


class Merged(Repeating):
    """A sorted tuple of different values, to which each use of the flag adds; the first use replaces the default."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _name: str | None = None) -> None:
        held = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if held is self.default else tuple(sorted({*held, *values})))


class Appended(Repeating):
    """A tuple to which each use of the flag appends; () by default."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, **{"default": (), **options})

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _name: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), values))
