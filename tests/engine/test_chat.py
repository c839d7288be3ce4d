"""Engine.chat: OpenAI's shapes, whole and streamed. Over FakeNative, whose parser knows one kind of tool call."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dflash_local.engine import Engine, SamplingParams
from dflash_local.errors import RequestError
from tests.fake_native import CONTROL, EOG, FakeNative

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
HI = [{"role": "user", "content": "hi"}]
CALL = [[*b"ok"], [CONTROL, *b'{"a"'], [*b": 1}", EOG]]


def test_chat() -> None:
    with Engine.over(FakeNative(lambda prompt: [[*prompt, EOG]])) as engine:
        done = engine.chat([{"role": "user", "content": "hi"}], max_tokens=50)
    assert done.message == {"role": "assistant", "content": "user: hi\n"}
    assert (done.text, done.finish_reason, done.timings.predicted_n) == ("user: hi\n", "stop", 9)


def test_stream() -> None:
    with Engine.over(FakeNative(b"hello world")) as engine:
        deltas = list(engine.chat([{"role": "user", "content": "hi"}], stream=True))
    assert [delta.content for delta in deltas] == ["h", "ello", " wor", "ld", None]
    assert [delta.finish_reason for delta in deltas] == [None] * 4 + ["stop"]
    assert deltas[-1].completion is not None
    assert deltas[-1].completion.text == "hello world"


def test_tool_calls_see_their_control_tokens() -> None:
    with Engine.over(FakeNative(lambda _: CALL)) as engine:
        done = engine.chat([{"role": "user", "content": "hi"}], tools=TOOLS)
        streamed = list(engine.chat([{"role": "user", "content": "hi"}], tools=TOOLS, stream=True))
    assert done.finish_reason == streamed[-1].finish_reason == "tool_calls"
    assert done.message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    calls = [call for delta in streamed for call in delta.delta.get("tool_calls", [])]
    assert "".join(call["function"]["arguments"] for call in calls) == '{"a": 1}'


def test_a_cut_tool_call_is_length() -> None:
    with Engine.over(FakeNative(lambda _: CALL)) as engine:
        assert engine.chat([{"role": "user", "content": "hi"}], tools=TOOLS, max_tokens=4).finish_reason == "length"


def test_a_stop_string_inside_arguments_finishes_no_call() -> None:
    ask: Any = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
    with Engine.over(FakeNative(lambda _: CALL)) as engine:
        done = engine.chat(**ask, stop=[": 1"])
        streamed = list(engine.chat(**ask, stop=[": 1"], stream=True))
        after = engine.chat(**ask, stop=["</tool_call>"])
    assert done.message["tool_calls"][0]["function"]["arguments"] == '{"a"'
    assert (done.finish_reason, streamed[-1].finish_reason, done.is_cut) == ("stop", "stop", True)
    assert (after.finish_reason, after.is_cut) == ("tool_calls", False)


@pytest.mark.parametrize(("stop", "reason"), [("arguments", "stop"), (None, "tool_calls")])
def test_a_call_that_wrote_no_arguments(stop: str | None, reason: str) -> None:
    """It gets {} at its end, which stands for arguments that were never written, too."""
    call = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    with Engine.over(FakeNative(lambda _: [[*b"x", EOG]])) as engine:
        completion = replace(engine.generate("x"), stopped_by=stop, finish_reason="stop")
        parser = engine.answer_parser(engine.apply_chat({"messages": [{"role": "user", "content": "hi"}]}))
    chat: Any = SimpleNamespace(push=lambda *_: [], message=lambda: {"tool_calls": [call]})
    parser._chat = chat
    assert parser.finish(completion)[1].finish_reason == reason


@pytest.mark.parametrize(
    ("arguments", "reason"), [('{"city":', "stop"), ("{", "stop"), ("[1]", "stop"), ('{"a": "x\ny"}', "tool_calls")]
)
def test_a_call_whose_arguments_are_not_closed_is_not_finished(arguments: str, reason: str) -> None:
    """Raw line ends are usual."""
    call = {"index": 0, "function": {"name": "f", "arguments": arguments}}
    with Engine.over(FakeNative(lambda _: [[*b"x", EOG]])) as engine:
        completion = engine.generate("x")
        parser = engine.answer_parser(engine.apply_chat({"messages": HI}))
    chat: Any = SimpleNamespace(push=lambda *_: [], message=lambda: {"tool_calls": [call]})
    parser._chat = chat
    assert parser.finish(completion)[1].finish_reason == reason


@pytest.mark.parametrize(("stop", "pushes"), [(None, [("ok", True)]), ("arguments", [("ok", False), ("", True)])])
def test_a_whole_answer_is_parsed_once(stop: str | None, pushes: list[tuple[str, bool]]) -> None:
    """At a stop string, what was written before the end tells whether a call is whole."""
    with Engine.over(FakeNative(lambda _: [[*b"ok", EOG]])) as engine:
        completion = replace(engine.generate("x"), stopped_by=stop)
        parser = engine.answer_parser(engine.apply_chat({"messages": HI}))
    chat = Mock()
    chat.push.return_value, chat.message.return_value = [], {}
    parser._chat = chat
    parser.parse(completion)
    assert [call.args for call in chat.push.call_args_list] == pushes


class Noting(FakeNative):
    """Keeps what it was to render."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[dict[str, Any]] = []

    def chat_apply(self, template: str | None, body: str) -> dict[str, Any]:
        self.bodies.append(json.loads(body))
        return super().chat_apply(template, body)


def test_a_constraint_in_the_object_goes_to_the_template_too() -> None:
    native = Noting()
    with Engine.over(native) as engine:
        engine.chat(HI, SamplingParams(grammar="of the object", top_k=7), tools=TOOLS)
        list(engine.chat(HI, SamplingParams(json_schema={"type": "null"}), stream=True))
        engine.chat(HI, SamplingParams(grammar="of the object"), grammar="given")
        engine.chat(HI, SamplingParams(grammar="of the object"), grammar=None)
        engine.chat(HI, SamplingParams(grammar="of the object"), json_schema=True)
    told = [{name: body[name] for name in ("grammar", "json_schema") if name in body} for body in native.bodies]
    assert told == [
        {"grammar": "of the object"},
        {"json_schema": {"type": "null"}},
        {"grammar": "given"},
        {},
        {"grammar": "of the object", "json_schema": True},
    ]
    assert json.loads(native.submitted[0]["sampling"])["top_k"] == 7
    assert not any("grammar" in sent["sampling"] or "json_schema" in sent["sampling"] for sent in native.submitted)


def test_template_refusal_names_messages() -> None:
    with Engine.over(FakeNative()) as engine, pytest.raises(RequestError) as caught:
        engine.chat([{"role": "refuse", "content": "x"}])
    assert caught.value.param == "messages"


def test_messages_must_be_json() -> None:
    with Engine.over(FakeNative()) as engine, pytest.raises(RequestError, match="must be JSON"):
        engine.chat([{"role": "user", "content": object()}])
