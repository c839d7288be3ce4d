"""Item: an object inside a body, read key by key; keys that nobody read are listed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

from dflash_local.errors import RequestError

T = TypeVar("T")

_KINDS = {str: "a string", list: "a list", dict: "an object", bool: "true or false", int: "an integer"}


class Item:
    """A JSON object at a place in the body, such as `messages[2].content[0]`. Null counts as absent.

    Every read raises a RequestError that names the place if the value is of another type.
    """

    def __init__(self, value: object, place: str, ignored: list[str]) -> None:
        self.place = place
        self._object = _as(dict, value, place)
        self._ignored = ignored
        self._read: set[str] = set()

    def get(self, key: str, kind: type[T]) -> T | None:
        """The value, None if absent."""
        self._read.add(key)
        value = self._object.get(key)
        return None if value is None else _as(kind, value, f"{self.place}.{key}")

    def need(self, key: str, kind: type[T]) -> T:
        """The value, which must be there."""
        value = self.get(key, kind)
        if value is None:
            raise RequestError(f"{self.place}.{key} is missing", param=f"{self.place}.{key}")
        return value

    def text(self, key: str) -> str:
        """A string, empty if absent."""
        return self.get(key, str) or ""

    def texts(self, key: str) -> str | list[Any] | None:
        """A string, or a list of objects that hold some."""
        self._read.add(key)
        value = self._object.get(key)
        if value is None or isinstance(value, (str, list)):
            return value
        raise self.refusal(key, "must be a string or a list")

    def need_texts(self, key: str) -> str | list[Any]:
        """`texts`, which must be there, but may be empty."""
        value = self.texts(key)
        if value is None:
            raise self.refusal(key, "is missing")
        return value

    def says(self, key: str, value: object) -> bool:
        """Whether a key has exactly this value."""
        self._read.add(key)
        return self._object.get(key) == value

    def inner(self, key: str) -> Item | None:
        """An object in it."""
        value = self.get(key, dict)
        return None if value is None else Item(value, f"{self.place}.{key}", self._ignored)

    def items(self, key: str) -> Iterator[Item]:
        """The objects of a list in it, none if it is absent."""
        return items(self.get(key, list) or [], f"{self.place}.{key}", self._ignored)

    def dump(self) -> str:
        """All of it as JSON."""
        self._read.update(self._object)
        return json.dumps(self._object, ensure_ascii=False)

    def refusal(self, key: str, why: str) -> RequestError:
        """An error about one of its keys."""
        return RequestError(f"{self.place}.{key} {why}", param=f"{self.place}.{key}")

    def ignore(self, what: str) -> None:
        """List that something in it has no effect."""
        name = re.sub(r"\[\d+\]", "", f"{self.place}.{what}" if what else self.place)
        if name not in self._ignored:
            self._ignored.append(name)

    def finish(self, *harmless: str) -> None:
        """List the keys that were neither read nor are `harmless`."""
        for key, value in self._object.items():
            if value is not None and key not in self._read and key not in harmless:
                self.ignore(key)


def items(values: list[Any], place: str, ignored: list[str]) -> Iterator[Item]:
    """The objects of a list."""
    for index, value in enumerate(values):
        yield Item(value, f"{place}[{index}]", ignored)


def _as(kind: type[T], value: object, place: str) -> T:
    if type(value) is not kind:
        raise RequestError(f"{place} must be {_KINDS[kind]}, got {value!r:.80}", param=place)
    return value
