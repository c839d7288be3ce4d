"""What values are, and how PowerShell converts and compares them.

Strings, numbers, booleans and $null are Python's; arrays are lists; script blocks are `Block`s of syntax.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.release.powershell.faults import Thrown, unknown
from tests.release.powershell.syntax import Block


class Nothing:
    """What a pipeline without output leaves: $null that isn't enumerated (AutomationNull)."""


NOTHING = Nothing()


class NetObject:
    """An object of .NET. Its members are the attributes that do not begin with `_`, in any case."""

    def _text(self) -> str:
        raise unknown(f"a text for {type(self).__name__}")


class Hashtable(NetObject):
    """`@{}`: strings as keys, in any case, and whole numbers."""

    def __init__(self) -> None:
        self._items: dict[Any, tuple[Any, Any]] = {}

    @staticmethod
    def _key(key: Any) -> Any:
        if not isinstance(key, (str, int)):
            raise unknown(f"the key {key!r}")
        return key.casefold() if isinstance(key, str) else key

    def _get(self, key: Any) -> Any:
        return self._items.get(self._key(key), (key, None))[1]

    def _set(self, key: Any, value: Any) -> None:
        self._items[self._key(key)] = (key, value)

    def ContainsKey(self, key: Any) -> bool:
        return self._key(key) in self._items

    @property
    def Count(self) -> int:
        return len(self._items)

    @property
    def Keys(self) -> list[Any]:
        return [key for key, _ in self._items.values()]

    def _text(self) -> str:
        return "System.Collections.Hashtable"


class ErrorRecord(NetObject):
    """What `$_` is in `catch`, and each line that a program writes to stderr where that is redirected."""

    def __init__(self, message: str, kind: str = "RuntimeException") -> None:
        self.Exception = NetException(message, kind)

    def _text(self) -> str:
        return str(self.Exception.Message)


class NetException(NetObject):
    def __init__(self, message: str, kind: str) -> None:
        self.Message = message
        self._kind = kind

    def _text(self) -> str:
        return f"{self._kind}: {self.Message}"


class EnumValue(NetObject):
    """One name of an enumeration, or several bits of it."""

    def __init__(self, name: str, bits: int = 0) -> None:
        self._name = name
        self._bits = bits

    def _text(self) -> str:
        return self._name


@functools.total_ordering
class Version(NetObject):
    """[version]: two to four numbers."""

    def __init__(self, text: str) -> None:
        if not re.fullmatch(r"\d+(\.\d+){1,3}", text):
            raise Thrown(f'Cannot convert value "{text}" to type "System.Version".', "InvalidCastException")
        self._numbers = tuple(int(part) for part in text.split("."))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._numbers == other._numbers

    def __lt__(self, other: Version) -> bool:
        return self._numbers < other._numbers

    def __hash__(self) -> int:
        return hash(self._numbers)

    def _text(self) -> str:
        return ".".join(map(str, self._numbers))


def plain(value: Any) -> Any:
    return None if value is NOTHING else value


def each(value: Any) -> Iterator[Any]:
    """What a pipeline passes on of a value: the elements of an array, nothing of nothing, else the value."""
    if isinstance(value, list):
        yield from value
    elif value is not NOTHING:
        yield value


def collapsed(values: list[Any]) -> Any:
    """What a variable gets of a pipeline's output."""
    if not values:
        return NOTHING
    return values[0] if len(values) == 1 else values


def text_of(value: Any) -> str:
    """As in "$value"."""
    if value is None or value is NOTHING:
        return ""
    if isinstance(value, (str, bool, int)):
        return str(value)
    if isinstance(value, list):
        return " ".join(text_of(item) for item in value)
    if isinstance(value, NetObject):
        return value._text()
    raise unknown(f"a text for {value!r}")


def truth(value: Any) -> bool:
    """As in `if ($value)`."""
    if isinstance(value, list):
        return truth(value[0]) if len(value) == 1 else bool(value)
    if value is None or value is NOTHING or isinstance(value, (str, int, float)):
        return bool(plain(value))
    return True


def equal(left: Any, right: Any) -> bool:
    """`-eq` of two values that are no arrays: the right one is converted to the type of the left one."""
    left, right = plain(left), plain(right)
    if isinstance(left, list) or isinstance(right, list):
        raise unknown("a comparison with an array")
    if left is None or right is None:
        return left is right
    if isinstance(left, bool):
        return left == truth(right)
    if isinstance(left, str) or (isinstance(left, EnumValue) and isinstance(right, str)):
        return text_of(left).casefold() == text_of(right).casefold()
    if isinstance(left, int) and isinstance(right, (int, str)):
        return left == integer(right)
    if isinstance(left, Version) and isinstance(right, Version):
        return left == right
    raise unknown(f"{left!r} -eq {right!r}")


def less(left: Any, right: Any) -> bool:
    left, right = plain(left), plain(right)
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    if isinstance(left, Version) and isinstance(right, Version):
        return left < right
    raise unknown(f"{left!r} -lt {right!r}")


def integer(value: Any) -> int:
    if isinstance(value, int):
        return int(value)
    if value is None or value is NOTHING:
        return 0
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value):
        return int(value)
    raise Thrown(f'Cannot convert value "{text_of(value)}" to type "System.Int32".', "InvalidCastException")


def converted(value: Any, type_name: str) -> Any:
    """The value as one of a type: a cast, or a parameter with that type."""
    name = type_name.lower().removeprefix("system.")
    if name == "string":
        if isinstance(value, (list, Hashtable, Block)):
            raise unknown(f"{type(value).__name__} as a string")
        return text_of(value)
    if name in ("string[]", "object[]"):
        if plain(value) is None:
            return None
        items = value if isinstance(value, list) else [value]
        return [text_of(item) for item in items] if name == "string[]" else items
    if name in ("bool", "switch"):
        if name == "switch" and not isinstance(value, bool):
            raise unknown("a switch with a value")
        return truth(value)
    if name == "int":
        return integer(value)
    if name == "version":
        return Version(text_of(value))
    raise unknown(f"the type [{type_name}]")


def wildcard(pattern: str, text: str) -> bool:
    """`-like`, and the file system's `-Filter`."""
    if set(pattern) & set("[]`"):
        raise unknown(f"the pattern {pattern}")
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, text, re.IGNORECASE | re.DOTALL) is not None


def pattern_of(text: str) -> str:
    """A regular expression of .NET, where Python's says the same."""
    if re.search(r"\(\?[^:im=!<]|\(\?<[^=!]|\\[pPGXkK]|\\Z|\[[^]]*-\[", text):
        raise unknown(f"the regular expression {text}")
    return text


def joined(items: Sequence[Any], between: str) -> str:
    return between.join(text_of(item) for item in items)
