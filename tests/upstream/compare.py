"""What two servers answered to the same requests of the same tests: where do the answers differ?

Compared are statuses, the names and types of all fields, values that are one of a few (enumerations), counts of tokens,
the names and order of events, and texts of answers that are the same each time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# Fields whose value is one of a few.
_ENUMERATIONS = {"object", "finish_reason", "stop_type", "stop_reason", "type", "role", "status", "encoding_format"}
_USAGE = {"usage", "prompt_n", "tokens_evaluated", "input_tokens"}
_TEXTS = {"content", "text", "reasoning_content", "thinking", "arguments", "prompt", "embedding", "tokens"}
# What is in them differs by what a request asks for, not by the server.
_OPEN = {"metadata", "logit_bias", "chat_template_kwargs"}

Entry = dict[str, Any]


def read(folder: Path) -> dict[tuple[str, int], Entry]:
    """All recorded requests by test and number."""
    entries: dict[tuple[str, int], Entry] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            entries[entry["test"], entry["n"]] = entry
    return entries


def differences(ours: Path, theirs: Path, tests: Iterable[str]) -> Counter[str]:
    """Each kind of difference and how often it was seen, in `tests`: `METHOD PATH: what`."""
    mine, others, chosen = read(ours), read(theirs), set(tests)
    found: Counter[str] = Counter()
    for key, entry in others.items():
        own = mine.get(key)
        if key[0] not in chosen or own is None or own["path"] != entry["path"] or own["request"] != entry["request"]:
            continue
        where = f"{entry['method']} {entry['path'].split('?')[0]}"
        found.update({f"{where}: {what}" for what in _compared(own, entry)})
    return found


def _compared(own: Entry, other: Entry) -> Iterator[str]:
    if own["status"] != other["status"]:
        yield f"status {other['status']} is {own['status']}"
        return
    if "events" in other:
        yield from _shapes("event", _merged(own.get("events", [])), _merged(other["events"]))
        kinds = [list(dict.fromkeys(event.get("type", "") for event in one.get("events", []))) for one in (own, other)]
        if kinds[0] != kinds[1]:
            yield f"events {kinds[1]} are {kinds[0]}"
    else:
        yield from _shapes("", own.get("body"), other.get("body"))


def _merged(events: list[Any]) -> Any:
    """One object with all that any event of the stream had."""
    whole: dict[str, Any] = {}
    for event in events:
        _merge(whole, event)
    return whole


def _merge(whole: dict[str, Any], event: Any) -> None:
    for name, value in event.items() if isinstance(event, dict) else ():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = _merged(value)
        if isinstance(value, dict) and isinstance(whole.get(name), dict):
            _merge(whole[name], value)
        elif whole.get(name) is None:
            whole[name] = value


def _shapes(path: str, own: Any, other: Any) -> Iterator[str]:
    if isinstance(other, dict):
        if not isinstance(own, dict):
            yield f"{path} is {_kind(own)}, not an object"
            return
        for name, value in other.items():
            if name in _OPEN:
                continue
            at = f"{path}.{name}"
            if name not in own:
                yield f"{at} is missing"
            else:
                yield from _values(name, at, own[name], value)
        yield from (f"{path}.{name} is more" for name in own if name not in other and path.rsplit(".")[-1] not in _OPEN)
    elif isinstance(other, list):
        if not isinstance(own, list):
            yield f"{path} is {_kind(own)}, not a list"
        elif own and other:
            yield from _shapes(f"{path}[]", own[0], other[0])
    elif _kind(own) != _kind(other):
        yield f"{path} is {_kind(own)}, not {_kind(other)}"


def _values(name: str, at: str, own: Any, other: Any) -> Iterator[str]:
    if name in _ENUMERATIONS and own != other and isinstance(other, str):
        yield f"{at} {other!r} is {own!r}"
    elif name in _USAGE and isinstance(other, int) and own != other:
        yield f"{at} differs"
    else:
        yield from _shapes(at, own, other)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return {str: "string", list: "list", dict: "object", type(None): "null"}.get(type(value), type(value).__name__)


def texts(entry: Entry) -> list[str]:
    """All texts of an answer in their order, those of a stream joined."""
    if "events" in entry:
        joined: dict[str, str] = {}
        for event in entry["events"]:
            for path, text in _strings(event, ""):
                joined[path] = joined.get(path, "") + text
        return [f"{path}: {text}" for path, text in sorted(joined.items())]
    return [f"{path}: {text}" for path, text in _strings(entry.get("body"), "")]


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name in _TEXTS and isinstance(item, str):
                yield f"{path}.{name}", item
            elif name in _TEXTS and isinstance(item, list) and not any(isinstance(part, dict) for part in item):
                # tokens, or numbers; those of a stream may come in other groups
                yield f"{path}.{name}", "".join(f"{part}," for part in item)
            elif not name.startswith("__"):
                yield from _strings(item, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            number = item.get("index", "") if isinstance(item, dict) else ""
            yield from _strings(item, f"{path}[{number}]")
