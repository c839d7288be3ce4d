"""Answer: what the shapes of all answers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

T = TypeVar("T")


@with_config(ConfigDict(extra="forbid"))
class Answer(TypedDict):
    """A JSON object with no fields but those listed; NotRequired ones may be absent."""


def about(text: str) -> Any:
    """A field's description in the document."""
    return Field(description=text)


def pick(shape: type[T], facts: Mapping[str, Any]) -> T:
    """The fields of `shape` that `facts` has; the native library leaves out what it does not know."""
    return cast(T, {name: facts[name] for name in shape.__annotations__ if name in facts})
