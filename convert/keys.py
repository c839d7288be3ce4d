"""Typed look-up of settings in `config.json`, in all places where published formats have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dflash_local.errors import ConvertError

_REQUIRED: Any = object()


class Keys:
    """Looks a setting up in `dflash_config`, then at the top level, then in `transformer_layer_config`; `null` counts
    as absent.

    The typed getters raise ConvertError, with the full key as `field`, for a value of another type, or a missing one
    without a default.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._places: list[tuple[str, Mapping[str, Any]]] = [("", config)]
        for at, name in ((0, "dflash_config"), (2, "transformer_layer_config")):
            nested = config.get(name)
            if isinstance(nested, dict):
                self._places.insert(at, (name + ".", nested))
            elif nested is not None:
                raise wrong(name, "it must be an object")

    @classmethod
    def inside(cls, key: str, mapping: Mapping[str, Any]) -> Keys:
        """A look-up only in `mapping`, which was found at `key`."""
        keys = cls({})
        keys._places = [(key + ".", mapping)]
        return keys

    def before(self, other: Keys) -> Keys:
        """A look-up here, then in the places of `other`."""
        keys = Keys({})
        keys._places = [*self._places, *other._places]
        return keys

    def find(self, name: str) -> tuple[str, Any]:
        """Full key and value of a setting; the bare name and None if it is missing."""
        return next(self._all(name), (name, None))

    def _all(self, name: str) -> Iterator[tuple[str, Any]]:
        return ((prefix + name, place[name]) for prefix, place in self._places if place.get(name) is not None)

    def _typed(self, name: str, default: Any, fits: Callable[[Any], bool], what: str) -> Any:
        key, value = self.find(name)
        if value is None:
            if default is _REQUIRED:
                raise wrong(key, "it is missing")
            return default
        if not fits(value):
            raise wrong(key, f"{value!r} is not {what}")
        return value

    def integer(self, name: str, default: int = _REQUIRED, *, minimum: int = 1, maximum: int = 2**31 - 1) -> int:
        what = f"a whole number from {minimum} to {maximum}"
        return self._typed(name, default, lambda v: type(v) is int and minimum <= v <= maximum, what)

    def number(self, name: str, default: float = _REQUIRED) -> float:
        """A positive number that float32 can hold."""
        return float(self._typed(name, default, lambda v: _is_number(v) and 1e-30 < v < 1e30, "a positive number"))

    def maybe_number(self, name: str) -> float | None:
        """A number that float32 can hold; None if absent."""
        value: float | None = self._typed(name, None, lambda v: _is_number(v) and abs(v) < 1e30, "a number")
        return None if value is None else float(value)

    def flag(self, name: str, default: bool) -> bool:
        return self._typed(name, default, lambda v: isinstance(v, bool), "true or false")

    def maybe_flag(self, name: str) -> bool | None:
        return self._typed(name, None, lambda v: isinstance(v, bool), "true or false")

    def text(self, name: str, default: str) -> str:
        return self._typed(name, default, lambda v: isinstance(v, str), "a string")

    def integers(self, name: str, default: list[int]) -> list[int]:
        return self._typed(
            name, default, lambda v: isinstance(v, list) and all(type(i) is int for i in v), "a list of whole numbers"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def wrong(key: str, what: str) -> ConvertError:
    """The error for a key of config.json."""
    return ConvertError(f"config.json: {key}: {what}", field=key)
