"""JSON from untrusted files."""

from __future__ import annotations

import json
from typing import Any


class DuplicateKeyError(Exception):
    """An object has `key` twice."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def strict_json(raw: bytes) -> Any:
    """The value of a JSON text. Raises ValueError, which says why, unless it is JSON in UTF-8 (with or without a byte
    order mark), DuplicateKeyError for a repeated key."""
    try:
        text = raw.decode("utf-8-sig")  # json.loads() of bytes would also accept UTF-16 and UTF-32
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
        # Python accepts escaped lone surrogates, and reads 1e400 as infinite.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _no_constant(name: str) -> None:
    """Python's own extension of JSON: NaN, Infinity and -Infinity."""
    raise ValueError(f"JSON has no number {name}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DuplicateKeyError(key)
        result[key] = value
    return result
