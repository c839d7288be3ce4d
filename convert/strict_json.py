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
    """The value of a JSON text. Raises ValueError unless it is JSON in UTF-8, DuplicateKeyError for a repeated key."""
    try:
        value = json.loads(raw, object_pairs_hook=_unique_keys)
        json.dumps(value, ensure_ascii=False).encode()  # Python accepts escaped lone surrogates
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DuplicateKeyError(key)
        result[key] = value
    return result
