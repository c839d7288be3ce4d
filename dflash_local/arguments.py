"""Arguments of the Python API: their types, checked against annotations, with errors that name the argument."""

from __future__ import annotations

import dataclasses
import inspect
import json
import numbers
import os
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from dflash_local.errors import RequestError

F = TypeVar("F", bound=Callable[..., Any])

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    Mapping: "an object",
    dict: "an object",
    os.PathLike: "a path",
}
# Undecoded text, not sequences of tokens.
_BYTES = (bytes, bytearray, memoryview)


def checked(function: F) -> F:
    """Make a function refuse arguments of wrong types with a RequestError that names them. Elements of sequences are
    checked too, except where they may be integers: those are token ids, often many, and the engine checks them."""
    signature = inspect.signature(function)
    names = [name for name, parameter in signature.parameters.items() if parameter.annotation is not parameter.empty]
    various = {name for name in names if signature.parameters[name].kind in (2, 4)}  # *args, **options

    @wraps(function)
    def with_checks(*args: Any, **kwargs: Any) -> Any:
        hints = _hints_of(function)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in hints and name not in various:
                check(name, value, hints[name])
        return function(*args, **kwargs)

    return with_checks  # type: ignore[return-value]


def check_fields(instance: Any, names: Iterable[str], *, deep: bool = False) -> None:
    """Refuse fields of wrong types of a dataclass instance. Fields with their default are not checked, as most of a
    request are, and elements of sequences only if `deep`."""
    hints, defaults = _hints_of(cast(Hashable, type(instance))), _defaults_of(cast(Hashable, type(instance)))
    for name in names:
        value = getattr(instance, name)
        if name not in defaults or value is not defaults[name]:
            check(name, value, hints[name], deep=deep)


def to_json(values: Mapping[str, object]) -> str:
    """The values as JSON. Raises RequestError for the first that cannot be written."""
    name = ""
    written: list[str] = []
    try:
        for name, value in values.items():
            written.append(f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}")
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{name} must be JSON: {error}", param=name) from None
    return "{" + ", ".join(written) + "}"


def check(name: str, value: object, hint: Any, *, deep: bool = True) -> None:
    """Raise a RequestError unless `value` fits the annotation `hint`."""
    if not _fits(value, hint, deep):
        raise RequestError(f"{name} must be {_words(hint)}, got {_shown(value)}", param=name)


def check_vocabulary(name: str, tokens: Sequence[int], n_vocab: int) -> None:
    """Raise a RequestError unless all tokens are in the vocabulary."""
    if tokens and not 0 <= min(tokens) <= max(tokens) < n_vocab:
        worst = min(tokens) if min(tokens) < 0 else max(tokens)
        raise RequestError(f"{name} holds token {worst}, but the vocabulary has {n_vocab} tokens", param=name)


@cache
def _hints_of(of: Any) -> dict[str, Any]:
    """The annotations of a function's parameters or of a class's fields. Not of the return value: it may name types
    that are imported only for type checkers."""
    if isinstance(of, type):
        return typing.get_type_hints(of)
    wanted = {name: hint for name, hint in of.__annotations__.items() if name != "return"}
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=wanted), of.__globals__)


@cache
def _defaults_of(kind: type) -> dict[str, Any]:
    """The values of a dataclass's fields that were not given."""
    if not dataclasses.is_dataclass(kind):
        return {}
    return {spec.name: spec.default for spec in dataclasses.fields(kind) if spec.default is not dataclasses.MISSING}


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The origin and the arguments of an annotation. Cached, because each request checks about a hundred of them."""
    return get_origin(hint), get_args(hint)


def _fits(value: object, hint: Any, deep: bool) -> bool:
    if type(value) is hint:
        return True
    origin, inner = _parts(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(_fits(value, one, deep) for one in inner)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if hint is bool:
        return isinstance(value, bool)
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    if origin is Sequence:
        return _is_sequence(value) and (not deep or _may_be_tokens(inner[0]) or _all_fit(value, inner[0]))
    if origin in (list, tuple, frozenset):
        return isinstance(value, origin)
    if origin is Callable:
        return callable(value)
    return isinstance(value, origin or hint)


def _may_be_tokens(element: Any) -> bool:
    return element is int or int in _parts(element)[1]


def _is_sequence(value: object) -> bool:
    """Numpy arrays count too."""
    if isinstance(value, (str, Mapping, *_BYTES)):
        return False
    return isinstance(value, Sequence) or (hasattr(value, "__len__") and hasattr(value, "__array__"))


def _all_fit(values: Any, hint: Any) -> bool:
    return all(_fits(value, hint, True) for value in values)


def _words(hint: Any) -> str:
    """`Sequence[str] | bool | None` as "a sequence of strings or true or false"; None is left out."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(one) for one in inner if one is not type(None)))
    if origin is Literal:
        return ("one of " if len(inner) > 1 else "") + ", ".join(repr(one) for one in inner)
    if origin is Sequence:
        return f"a sequence of {_plural(inner[0])}"
    if origin is Callable:
        return "a function"
    kind = origin or hint
    return _WORDS.get(kind) or f"a {kind.__name__}"


def _plural(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " and ".join(_plural(one) for one in get_args(hint))
    if get_origin(hint) is Sequence:
        return "sequences"
    return "values" if hint is Any else f"{_words(hint).partition(' ')[2]}s"


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except Exception:  # an object whose repr fails
        return f"a {type(value).__name__}"
