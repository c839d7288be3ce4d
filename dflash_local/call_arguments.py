"""Call arguments: JSON that a model wrote, whole or not. What is no object is made one, as templates want one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic_core import from_json

MAX_NESTING = 128  # levels that libdflash reads (json_fields.h)


def partial_arguments(text: str) -> dict[str, Any]:
    """What a call's arguments say so far; nothing if that is no object."""
    return _begun(text) or {}


def usable_arguments(text: str) -> str:
    """The arguments of an earlier call as a JSON object: as they are if they are one, what they say so far if the end
    is missing, and else the whole text under the name `arguments`. A conversation must not end because of a call that
    a limit cut off, or that a model got wrong."""
    if not text.strip() or text.strip() == "null":
        return "{}"
    if _is_object(text):
        return text
    for read in (_with_raw_lines, _begun):
        with suppress(ValueError, RecursionError):
            found = json.dumps(read(text), ensure_ascii=False)
            if _is_object(found):
                return found
    return json.dumps({"arguments": text}, ensure_ascii=False)


def with_usable_arguments(messages: Any) -> Any:
    """A conversation whose calls have usable arguments; what is malformed otherwise stays as it is."""
    if not isinstance(messages, list):
        return messages
    return [_mended(message) if isinstance(message, Mapping) else message for message in messages]


def _mended(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls, old = message.get("tool_calls"), message.get("function_call")
    mended: dict[str, Any] = {}
    if isinstance(calls, list):
        mended["tool_calls"] = [
            {**call, "function": _with_usable(call["function"])}
            if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)
            else call
            for call in calls
        ]
    if isinstance(old, Mapping) and old:
        mended["function_call"] = _with_usable(old)
    return {**message, **mended} if mended else message


def _with_usable(function: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = function.get("arguments")
    return {**function, "arguments": usable_arguments(arguments)} if isinstance(arguments, str) else function


def _is_object(text: str) -> bool:
    """Whether libdflash and llama.cpp read it as an object."""
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # half of a character is no text
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and _depth(value) <= MAX_NESTING


def _with_raw_lines(text: str) -> Any:
    """JSON whose strings have line ends in them, which models forget to escape."""
    return json.loads(text, strict=False)


def _begun(text: str) -> dict[str, Any] | None:
    """What the beginning of an object, or a whole one, says. None if it is none, or if something follows its end."""
    try:
        value = from_json(text, allow_partial="trailing-strings")
        _, end = json.JSONDecoder().raw_decode(text.strip())
    except json.JSONDecodeError:
        end = len(text)  # it goes on
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and end >= len(text.strip()) else None


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    return depth


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is out of range")
    return value
