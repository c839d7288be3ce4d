"""Operators with one or two values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.release.powershell.faults import unknown
from tests.release.powershell.scope import Scope
from tests.release.powershell.values import (
    EnumValue,
    Hashtable,
    each,
    equal,
    joined,
    less,
    pattern_of,
    plain,
    text_of,
    truth,
    wildcard,
)  # fmt: skip


def joined_or_negated(operator: str, value: Any) -> Any:
    if operator == "-not":
        return not truth(value)
    raise unknown(f"{operator} of one value")


def binary(operator: str, left: Any, right: Any, scope: Scope) -> Any:
    right = plain(right)
    if operator in _COMPARISONS:
        positive, sense = _COMPARISONS[operator]
        if isinstance(left, list):
            # Of an array, these operators select.
            return [item for item in left if positive(item, right, None) == sense]
        return positive(left, right, scope) == sense
    if operator in _OTHERS:
        return _OTHERS[operator](left, right)
    raise unknown(operator)


def _matches(text: Any, pattern: Any, scope: Scope | None) -> bool:
    """Sets $Matches where a single text has matched, which stays otherwise."""
    found = re.search(pattern_of(text_of(pattern)), text_of(text), re.IGNORECASE)
    if found and scope:
        table = Hashtable()
        for number, part in enumerate((found[0], *found.groups())):
            if part is not None:
                table._set(number, part)
        scope.set("Matches", table)
    return found is not None


def _equal(left: Any, right: Any, _: Scope | None) -> bool:
    return equal(left, right)


def _greater(left: Any, right: Any, _: Scope | None) -> bool:
    return less(right, left)


def _less(left: Any, right: Any, _: Scope | None) -> bool:
    return less(left, right)


def _like(left: Any, right: Any, _: Scope | None) -> bool:
    return wildcard(text_of(right), text_of(left))


_COMPARISONS: dict[str, tuple[Callable[[Any, Any, Scope | None], bool], bool]] = {
    "-eq": (_equal, True), "-ne": (_equal, False), "-gt": (_greater, True), "-le": (_greater, False),
    "-lt": (_less, True), "-ge": (_less, False), "-match": (_matches, True), "-notmatch": (_matches, False),
    "-like": (_like, True), "-notlike": (_like, False),
}  # fmt: skip


def _contains(left: Any, right: Any) -> bool:
    return any(equal(item, right) for item in each(left))


def _sum(left: Any, right: Any) -> Any:
    left = plain(left)
    if left is None:
        return right
    if isinstance(left, list):
        return left + list(each(right))
    if isinstance(left, str):
        return left + text_of(right)
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    raise unknown(f"{left!r} + {right!r}")


def _bits(left: Any, right: Any) -> Any:
    if isinstance(left, EnumValue) and isinstance(right, EnumValue):
        return EnumValue(f"{left._name}, {right._name}", left._bits | right._bits)
    raise unknown("-bor of others than enumerations")


def _split(left: Any, right: Any) -> list[str]:
    if isinstance(left, list):
        raise unknown("-split of an array")
    return re.split(pattern_of(text_of(right)), text_of(left), flags=re.IGNORECASE)


def _replace(left: Any, right: Any) -> str:
    if isinstance(left, list) or (isinstance(right, list) and len(right) != 2):
        raise unknown("-replace of these")
    pattern, text = right if isinstance(right, list) else (right, "")
    if "$" in text_of(text):
        raise unknown("-replace by what was found")
    return re.sub(pattern_of(text_of(pattern)), lambda _: text_of(text), text_of(left), flags=re.IGNORECASE)


_OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "-contains": _contains, "-notcontains": lambda left, right: not _contains(left, right),
    "-in": lambda left, right: _contains(right, left), "-notin": lambda left, right: not _contains(right, left),
    "+": _sum, "-bor": _bits, "-split": _split, "-replace": _replace,
    "-join": lambda left, right: joined(list(each(left)), text_of(right)),
}  # fmt: skip
