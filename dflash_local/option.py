"""Option: what an option has besides name, type and default; signatures, docstrings and C structs are made of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_int32
from dataclasses import MISSING, dataclass, fields
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
Options = TypeVar("Options")
Owner = TypeVar("Owner")

TOKENS = POINTER(c_int32)  # as a native type: an array NAME, whose length is the next field, n_NAME


@dataclass(frozen=True, kw_only=True)
class Option:
    """The metadata of an option besides its name, type and default (its field's `metadata["option"]`).

    Attributes:
        help: the description, shown everywhere.
        default_text: the meaning of its default, where the value does not show it.
        native_type: type of its field in the C struct; None: it has none.
        native_name: name of that field; None: the option's own.
        native_value: converts the value for that field, or raises RequestError; None: unchanged.
        low: smallest integer.
    """

    help: str
    default_text: str | None = None
    native_type: Any = None
    native_name: str | None = None
    native_value: Callable[[Any], Any] | None = None
    low: int | None = None


def options_of(owner: Any) -> dict[str, Any]:
    """The Option of each field that has one, by the field's name, in the order of the C struct."""
    return {spec.name: spec.metadata["option"] for spec in fields(owner) if "option" in spec.metadata}


def defaults_of(owner: Any) -> dict[str, Any]:
    return {spec.name: spec.default for spec in fields(owner) if spec.default is not MISSING}


def with_arguments(text: str | None, owner: Any) -> str:
    """A docstring with the arguments of `owner`, a class of options, inserted before its "Raises" section."""
    defaults = defaults_of(owner)
    lines = [f"    {name}: {in_python(option, defaults.get(name))}." for name, option in options_of(owner).items()]
    head, raises, rest = inspect.cleandoc(text or "").partition("Raises:")
    return "\n".join([head.rstrip(), "", "Args:", *lines, "", raises + rest]).strip()


def in_python(option: Option, default: Any) -> str:
    """The help of an option, with the meaning of its default."""
    return f"{option.help}; {default!r}: {option.default_text}" if option.default_text else option.help


def native_fields(owner: Any) -> list[tuple[str, Any]]:
    """Name and ctypes type of each field of the C struct."""
    found: list[tuple[str, Any]] = []
    for name, option in options_of(owner).items():
        if option.native_type is not None:
            native_name = option.native_name or name
            found.append((native_name, option.native_type))
            if option.native_type is TOKENS:
                found.append((f"n_{native_name}", c_int32))
    return found


def native_params(instance: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the C struct by their names there, as str, numbers, sequences of tokens or None."""
    return {
        option.native_name or name: (option.native_value or _same)(getattr(instance, name))
        for name, option in options.items()
        if option.native_type is not None
    }


def _same(value: Any) -> Any:
    return value


def takes_arguments_of(
    options: Callable[P, Options],
) -> Callable[[Callable[[Owner, Options], None]], Callable[Concatenate[Owner, P], None]]:
    """Let an `__init__` that takes one `options` be called with the arguments of its class instead.

    Type checkers and `inspect` see them in its signature, and its docstring lists them.
    """

    def decorate(method: Callable[[Owner, Options], None]) -> Callable[Concatenate[Owner, P], None]:
        def call(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> None:
            method(self, options(*args, **kwargs))

        update_wrapper(call, method)
        call.__doc__ = with_arguments(method.__doc__, options)
        own = inspect.signature(method)
        owner = next(iter(own.parameters.values()))
        arguments = inspect.signature(options).parameters.values()
        call.__signature__ = own.replace(parameters=[owner, *arguments])  # type: ignore[attr-defined]
        return call

    return decorate
