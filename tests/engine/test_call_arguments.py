"""Arguments of earlier calls: whatever a model wrote, or a limit cut off, the conversation goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.call_arguments import partial_arguments, usable_arguments, with_usable_arguments
from dflash_local.errors import RequestError

DEEP = '{"a":' + "[" * 200


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('{"a":1,  "b":"ü"}\n', '{"a":1,  "b":"ü"}\n'),  # as it was written
        ("", "{}"),
        (" \n", "{}"),
        ("null", "{}"),
        ("{", "{}"),
        ('{"a": "b', '{"a": "b"}'),
        ('{"a": "b\\', '{"a": "b"}'),
        ('{"a": 1, "b', '{"a": 1}'),
        ('{"a": {"b": [1, 2', '{"a": {"b": [1, 2]}}'),
        ('{"a": "\\ud83d', '{"a": ""}'),
        ('{"a": "one\ntwo"}', '{"a": "one\\ntwo"}'),
        ('{"a": 1}}', '{"arguments": "{\\"a\\": 1}}"}'),
        ('{"a": 1}{"a": 1}', '{"arguments": "{\\"a\\": 1}{\\"a\\": 1}"}'),
        ("{'a': 1}", '{"arguments": "{\'a\': 1}"}'),
        ("a.py", '{"arguments": "a.py"}'),
        ("[1]", '{"arguments": "[1]"}'),
        ("5", '{"arguments": "5"}'),
        ('{"a": NaN}', '{"arguments": "{\\"a\\": NaN}"}'),
        ('{"a": 1e999}', '{"arguments": "{\\"a\\": 1e999}"}'),
        ('{"a": "\\ud83d"}', '{"arguments": "{\\"a\\": \\"\\\\ud83d\\"}"}'),
        (DEEP, json.dumps({"arguments": DEEP})),
        (DEEP + "]" * 200 + "}", json.dumps({"arguments": DEEP + "]" * 200 + "}"})),
        ('{"a": 1' + "0" * 5000, json.dumps({"arguments": '{"a": 1' + "0" * 5000})),
    ],
)
def test_arguments_become_an_object(text: str, usable: str) -> None:
    assert usable_arguments(text) == usable
    assert isinstance(json.loads(usable), dict)


def test_what_a_call_says_so_far() -> None:
    assert partial_arguments('{"path": "a", "text": "so f') == {"path": "a", "text": "so f"}
    assert partial_arguments("[1") == partial_arguments("x") == {}


@pytest.mark.parametrize(
    "messages",
    [
        *(None, "x", [None], ["x"], [{}], [{"tool_calls": None}], [{"tool_calls": "x"}]),
        [{"tool_calls": [None, {}, {"function": 3}]}],
        [{"tool_calls": [{"function": {"arguments": {"a": 1}}}]}],
        [{"function_call": "auto"}],
    ],
)
def test_what_is_malformed_otherwise_is_left_to_others(messages: Any) -> None:
    assert with_usable_arguments(messages) == messages


USER = {"role": "user", "content": "Write a file."}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "write",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


def test_a_call_that_a_limit_cut_off_is_followed_by_a_turn(pocket: dict[str, Path]) -> None:
    with Engine(pocket["target"], n_ctx=512, n_threads=1) as engine:
        asked: dict[str, Any] = {"tools": [TOOL], "temperature": 0, "seed": 1}
        cut = engine.chat([USER], tool_choice="required", max_tokens=22, logit_bias={"<tool_call>": 9}, **asked)
        (made,) = cut.message["tool_calls"]
        assert cut.finish_reason == "length"
        with pytest.raises(ValueError, match=r"."):
            json.loads(made["function"]["arguments"])
        told = {"role": "tool", "tool_call_id": made["id"], "content": "cut off"}
        engine.chat([USER, cut.message, told], max_tokens=3, **asked)
        for arguments in ("", "a.py", "[1]", DEEP):
            said = {**cut.message, "tool_calls": [{**made, "function": {"name": "write", "arguments": arguments}}]}
            engine.chat([USER, said, told], max_tokens=1, **asked)
            old = {"role": "assistant", "function_call": {"name": "write", "arguments": arguments}}
            engine.chat([USER, old, {"role": "function", "name": "write", "content": "x"}], max_tokens=1)
        with pytest.raises(RequestError, match=r"messages\[1\]\.tool_calls\[0\]\.function\.arguments"):
            engine.chat(
                [USER, {**cut.message, "tool_calls": [{**made, "function": {"name": "f", "arguments": 3}}]}, told]
            )
