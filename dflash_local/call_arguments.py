"""Arguments of a model's tool calls: JSON, perhaps cut off or malformed, made into the object that templates want."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from pydantic_core import from_json

MAX_NESTING = 128  # the limit of libdflash (json_fields.h)


def partial_arguments(text: str) -> dict[str, Any]:
    """The arguments written so far; empty if they are not an object."""
    return _begun(text) or {}


def usable_arguments(text: str) -> str:
    """The arguments of an earlier call as a JSON object: unchanged if they are one, completed if the end is missing,
    else the whole text under the name `arguments`. A call that was cut off or malformed must not end a conversation."""
    if not text.strip() or text.strip() == "null":
        return "{}"
    if is_object(text):
        return text
    for read in (partial(json.loads, strict=False), _begun):  # models forget to escape line ends, or do not finish
        with suppress(ValueError, RecursionError):
            found = json.dumps(read(text), ensure_ascii=False)
            if is_object(found):
                return found
    return json.dumps({"arguments": text}, ensure_ascii=False)


def with_usable_arguments(messages: Any) -> Any:
    """The conversation with usable arguments in all calls; anything else stays as it is, malformed or not."""
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


def is_object(text: str) -> bool:
    """Whether libdflash and llama.cpp read it as an object."""
    try:
        value = json.loads(text, parse_constant=no_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and _depth(value) <= MAX_NESTING


def is_closed(text: str) -> bool:
    """Whether it is an object to its end. Raw line ends in its strings are fine: llama.cpp lets them through."""
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _begun(text: str) -> dict[str, Any] | None:
    """The fields of an object, perhaps cut off. None if it is not an object, or if text follows its end."""
    try:
        value = from_json(text, allow_partial="trailing-strings")
        _, end = json.JSONDecoder().raw_decode(text.strip())
    except json.JSONDecodeError:
        end = len(text)  # cut off
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


def no_constant(name: str) -> None:
    """Refuse NaN and the like, which Python's parser takes."""
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is out of range")
    return value
