"""What an answer says: its texts, calls, reasons and numbers, whole or as the sum of its events; without ids and times,
and without how its events were divided, which depends on the drafts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

# Names of what is the same whenever it is asked: what answers consist of, and what is told about them. What stands
# below other names is not looked at.
CONTENT = frozenset({
    "choices", "message", "delta", "content", "text", "reasoning_content", "thinking", "tool_calls", "function", "name",
    "partial_json", "content_block", "output", "response", "piece", "tokens", "count", "input_tokens", "data",
    "embedding", "embeddings", "results", "relevance_score",
})  # fmt: skip
FRAME = frozenset({
    "prompt", "context", "finish_reason", "stop_reason", "stop_sequence", "stop_type", "stopping_word", "done_reason",
    "incomplete_details", "reason", "truncated",
})  # fmt: skip
SAYING = CONTENT | FRAME
# Below these everything counts: arguments have the client's names, and probabilities those of tokens.
WHOLLY = frozenset({"arguments", "input", "logprobs", "completion_probabilities"})
ENDS = ("message_stop", "response.completed", "response.incomplete")

Said = dict[str, Any]


def events_of(body: str) -> list[Any]:
    """The events of a stream, or its lines of JSON."""
    lines = (line.removeprefix("data: ") for line in body.split("\n"))
    return [json.loads(line) for line in lines if line.startswith("{")]


def said_in_stream(body: str) -> Said:
    """What a stream says. Raises AssertionError: it reports an error, or lacks its end."""
    events = events_of(body)
    for event in events:
        failed = event.get("error") or event.get("type") in ("error", "response.failed")
        assert not failed, f"an error in the stream: {json.dumps(event)[:600]}"
    last = events[-1] if events else {}
    is_ended = body.rstrip().endswith("data: [DONE]") or last.get("stop") is True or last.get("done") is True
    assert is_ended or last.get("type") in ENDS, f"the stream does not end: ...{body[-300:]!r}"
    return said(events)


def said_in_whole(body: str) -> Said:
    """What a whole answer of JSON says."""
    return said([json.loads(body)])


def said(events: Sequence[Any]) -> Said:
    """What events say together, by its place: texts joined, lists one behind the other."""
    found: dict[str, list[Any]] = {}
    for event in events:
        _gather(event, "", found, wholly=False)
    return {
        place: "".join(items) if all(isinstance(x, str) for x in items) else items for place, items in found.items()
    }


def _gather(value: Any, place: str, found: dict[str, list[Any]], *, wholly: bool) -> None:
    if isinstance(value, dict):
        place += _index(value)
        for name, item in value.items():
            if wholly or name in SAYING | WHOLLY:
                _gather(item, f"{place}.{name}", found, wholly=wholly or name in WHOLLY)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict) and _index(item):
                _gather(item, place, found, wholly=wholly)
            else:
                found.setdefault(place, []).append(_kept(item, wholly=wholly))
    elif value is not None:
        found.setdefault(place, []).append(value)


def _index(value: dict[str, Any]) -> str:
    index = value.get("index")
    return f"[{index}]" if isinstance(index, int) else ""


def _kept(value: Any, *, wholly: bool) -> Any:
    """An item of a list, without what may differ."""
    if isinstance(value, dict):
        return {
            name: _kept(item, wholly=wholly or name in WHOLLY)
            for name, item in value.items()
            if wholly or name in SAYING | WHOLLY
        }
    if isinstance(value, list):
        return [_kept(item, wholly=wholly) for item in value]
    return value


def is_silent(said: Said) -> bool:
    """Whether an answer has no content, so that comparing it shows little. A prompt alone is what was asked for."""
    return said.keys() != {".prompt"} and not any(
        value for place, value in said.items() if place.rpartition(".")[2] not in FRAME
    )


def difference(now: Said, before: Said) -> str:
    """Where two answers say different things, and what; empty: nowhere."""
    for place in sorted(now.keys() | before.keys()):
        if (one := now.get(place)) != (other := before.get(place)):
            return f"at {place or 'the whole'}: {_cut(one, other)} instead of {_cut(other, one)}"
    return ""


def _cut(value: Any, other: Any) -> str:
    """A text or list, from a little before its first difference on."""
    if not isinstance(value, (str, list)) or not isinstance(other, (str, list)):
        return f"{value!r:.300}"
    at = next((i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), min(len(value), len(other)))
    return f"[{at}] ...{value[max(at - 20, 0) : at + 60]!r:.400}"
