"""Anthropic's messages over a scripted engine: conversion, shapes, streams, stop reasons, refusals, errors."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, MessageTokensCount

from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.server.fields.messages import MessagesRequest
from dflash_local.server.fields.request import Defaults
from dflash_local.server.settings import Settings
from dflash_local.server.thoughts import seal, unseal
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.conftest import TEXT, named_events, nested, script
from tests.server.live import Live, live

ASK: Any = [{"role": "user", "content": "hi"}]
TOOL: Any = {"name": "f", "description": "does it", "input_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def client(server: Live) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=PATIENCE) as made:
        yield made


def post(server: Live, **body: Any) -> Any:
    return server.http.post("/v1/messages", json={"max_tokens": 100, **body})


def events(server: Live, **body: Any) -> list[dict[str, Any]]:
    """A stream's events."""
    response = post(server, stream=True, **body)
    assert response.headers["content-type"].startswith("text/event-stream")
    return named_events(response.text)


# ---- answers ----


def test_a_message_is_what_the_sdk_expects(server: Live) -> None:
    body = post(server, messages=ASK).json()
    message = Message.model_validate(body, strict=True, extra="forbid")
    assert message.id.startswith("msg_")
    assert (message.model, message.stop_reason, message.stop_sequence) == ("fake", "end_turn", None)
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": TEXT}]
    assert (message.usage.input_tokens, message.usage.output_tokens) == (9, 26)
    assert message.usage.cache_read_input_tokens == 0
    assert message.usage.output_tokens_details is not None
    assert message.usage.output_tokens_details.thinking_tokens == 0
    assert "timings" not in body


def test_a_stream_is_the_same_message(client: anthropic.Anthropic) -> None:
    options: Any = {"model": "fake", "max_tokens": 100, "tools": [TOOL]}
    for question in ("hi", "think", "call", "call twice"):
        messages: Any = [{"role": "user", "content": question}]
        whole = client.messages.create(messages=messages, **options)
        with client.messages.stream(messages=messages, **options) as stream:
            streamed = stream.get_final_message()
        drop: Any = {"id": True, "content": {"__all__": {"id", "parsed_output"}}}
        assert streamed.model_dump(exclude=drop) == whole.model_dump(exclude=drop), question


def test_blocks_of_a_stream(server: Live) -> None:
    found = events(server, messages=[{"role": "user", "content": "call"}], tools=[TOOL])
    kinds = [(event["type"], event.get("index")) for event in found]
    assert kinds == [
        ("message_start", None),
        ("content_block_start", 0), ("content_block_delta", 0), ("content_block_delta", 0), ("content_block_stop", 0),
        ("content_block_start", 1), ("content_block_delta", 1), ("content_block_stop", 1),
        ("content_block_start", 2), ("content_block_delta", 2), ("content_block_delta", 2), ("content_block_stop", 2),
        ("message_delta", None), ("message_stop", None),
    ]  # fmt: skip
    starts = [event["content_block"] for event in found if event["type"] == "content_block_start"]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "id0", "name": "f", "input": {}},
    ]
    deltas = [event["delta"] for event in found if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas] == [
        "thinking_delta", "signature_delta", "text_delta", "input_json_delta", "input_json_delta",
    ]  # fmt: skip
    assert deltas[1]["signature"]
    assert "".join(delta["partial_json"] for delta in deltas[3:]) == '{"a": 1}'
    start, end = found[0]["message"], found[-2]
    assert (start["content"], start["stop_reason"], start["usage"]["input_tokens"]) == ([], None, 11)
    assert end["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert end["usage"]["output_tokens"] > 20


def test_parallel_calls_are_blocks_of_their_own(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model="fake", max_tokens=100, messages=[{"role": "user", "content": "call twice"}], tools=[TOOL]
    ) as stream:
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    assert [block.input for block in message.content if block.type == "tool_use"] == [{"a": 1}, {"b": 2}]


def test_stop_reasons(server: Live) -> None:
    def stop(**body: Any) -> tuple[str, str | None]:
        message = post(server, **{"messages": ASK, **body}).json()
        end = events(server, **{"messages": ASK, **body})[-2]["delta"]
        assert end == {name: message[name] for name in end}
        return message["stop_reason"], message["stop_sequence"]

    assert stop() == ("end_turn", None)
    assert stop(max_tokens=5) == ("max_tokens", None)
    assert stop(stop_sequences=["x", " wo"]) == ("stop_sequence", " wo")
    called: Any = {"messages": [{"role": "user", "content": "call"}], "tools": [TOOL]}
    assert stop(**called) == ("tool_use", None)
    assert stop(**called, stop_sequences=[": 1"]) == ("stop_sequence", ": 1")  # inside the arguments
    # Cut off in the middle of a call, it is no call.
    assert stop(messages=[{"role": "user", "content": "call"}], tools=[TOOL], max_tokens=25) == ("max_tokens", None)
    assert stop(max_tokens=0) == ("max_tokens", None)


def test_the_servers_own_stops_are_no_stop_sequences() -> None:
    with live(lambda _: Engine.over(FakeNative(script)), Settings(defaults=Defaults(stop=(" wo",)))) as running:
        message = post(running, messages=ASK).json()
        assert message["content"] == [{"type": "text", "text": "hello"}]
        assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
        message = post(running, messages=ASK, stop_sequences=["lo"]).json()
        assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "lo")


def test_a_call_that_is_cut_off_has_the_input_so_far(server: Live) -> None:
    message = post(server, messages=[{"role": "user", "content": "call"}], tools=[TOOL], max_tokens=27).json()
    assert message["content"][-1]["input"] == {"a": 1}
    message = post(server, messages=[{"role": "user", "content": "call"}], tools=[TOOL], max_tokens=22).json()
    assert message["content"][-1]["input"] == {}


def test_hidden_thoughts_come_back_by_their_signature(server: Live) -> None:
    ask: Any = [{"role": "user", "content": "think"}]
    hidden: Any = {"type": "adaptive", "display": "omitted"}
    answer = post(server, messages=ask).json()
    assert answer["usage"]["output_tokens_details"]["thinking_tokens"] == len("<think>let me see")
    shown = answer["content"]
    assert shown[0]["thinking"] == "let me see"
    assert shown[0]["signature"]
    for blocks in (
        post(server, messages=ask, thinking=hidden).json()["content"],
        [
            {"type": "thinking", "thinking": "", "signature": event["delta"]["signature"]}
            for event in events(server, messages=ask, thinking=hidden)
            if event["type"] == "content_block_delta" and event["delta"]["type"] == "signature_delta"
        ],
    ):
        assert blocks[0]["thinking"] == ""
        assert unseal(blocks[0]["signature"]) == "let me see"
        assert converted(messages=[*ask, {"role": "assistant", "content": blocks[:1]}])["messages"][1] == {
            "role": "assistant", "content": "", "reasoning_content": "let me see",
        }  # fmt: skip
    assert not [event for event in events(server, messages=ask, thinking=hidden) if "thinking_delta" in str(event)]


def test_count_tokens(client: anthropic.Anthropic, server: Live) -> None:
    counted = client.messages.count_tokens(model="fake", messages=ASK, system="be", tools=[TOOL])
    assert counted.input_tokens == len("system: be\nuser: hi\n")
    body = server.http.post("/v1/messages/count_tokens", json={"messages": ASK}).json()
    MessageTokensCount.model_validate(body, strict=True, extra="forbid")


def test_beta_requests(client: anthropic.Anthropic) -> None:
    message = client.beta.messages.create(
        model="fake",
        max_tokens=9,
        messages=ASK,
        betas=["interleaved-thinking-2025-05-14"],
        thinking={"type": "disabled"},
    )
    assert message.content[0].type == "text"


def test_it_streams_to_many(client: anthropic.Anthropic) -> None:
    texts: list[str] = []

    def ask() -> None:
        with client.messages.stream(model="fake", max_tokens=100, messages=ASK) as stream:
            texts.append("".join(stream.text_stream))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert texts == [TEXT] * 6


# ---- conversion ----


def text_block(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def converted(**body: Any) -> dict[str, Any]:
    request = MessagesRequest.of({"max_tokens": 9, **body})
    chat = request.chat()
    return {**chat.given(), "ignored": request.ignored + chat.ignored}


def test_texts_and_turns() -> None:
    chat = converted(
        system=[
            {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "two"},
        ],
        messages=[
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "citations": None}],
            },
            {"role": "user", "content": "c"},
            {"role": "system", "content": "from now on"},
            {"role": "assistant", "content": "d"},
        ],
    )
    assert chat["messages"] == [
        {"role": "system", "content": "one\ntwo"},
        {"role": "user", "content": "a\nb\nc\nfrom now on"},
        {"role": "assistant", "content": "d"},
    ]
    assert chat["ignored"] == []


@pytest.mark.parametrize("content", ["", [], [text_block("")], [{"type": "server_tool_use"}]])
def test_a_user_may_say_nothing(content: Any) -> None:
    """It is a turn, too: without it the assistant's would be continued."""
    nothing = {"role": "user", "content": content}
    assert converted(messages=[nothing])["messages"] == [{"role": "user", "content": ""}]
    turns = converted(messages=[*ASK, {"role": "assistant", "content": "a"}, nothing])["messages"]
    assert turns[1:] == [{"role": "assistant", "content": "a"}, {"role": "user", "content": ""}]


def test_a_tool_turn() -> None:
    messages: Any = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I must ", "signature": "foreign"},
                {"type": "thinking", "thinking": "look", "signature": ""},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"é": [1, None]}, "cache_control": None},
                {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [text_block("x"), text_block("y")]},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no such file"},
                {"type": "text", "text": "go on"},
            ],
        },
        {"role": "assistant", "content": []},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t3"}]},
    ]  # fmt: skip
    assert converted(messages=messages)["messages"] == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "I must look",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"é": [1, null]}'}},
                {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "x\ny"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: no such file"},
        {"role": "user", "content": "go on"},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
    ]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;", ""),
        ("x-anthropic-billing-header: cc_version=2.1.9.0d9; cc_entrypoint=cli; cch=fa690;You are", "You are"),
        ("x-anthropic-billing-header: cc_version=2.1.9; cc_entrypoint=sdk-cli; cc_workload=cron; cch=0;\nYou", "You"),
        ("x-anthropic-billing-header:\nYou", "You"),
        ("about x-anthropic-billing-header: cch=1;", "about x-anthropic-billing-header: cch=1;"),
    ],
)
def test_the_billing_header_is_no_part_of_the_prompt(text: str, rest: str) -> None:
    for system in (text, [{"type": "text", "text": text}]):
        chat = converted(system=system, messages=ASK)
        assert chat["messages"][:-1] == ([{"role": "system", "content": rest}] if rest else [])


def test_what_documents_ask_for_is_named() -> None:
    """Nothing here writes citations."""
    text = {"type": "text", "media_type": "text/plain", "data": "a"}
    for enabled in (True, False):
        document = {"type": "document", "source": text, "citations": {"enabled": enabled}}
        chat = converted(messages=[{"role": "user", "content": [document]}], output_format=None)
        assert chat["ignored"] == ["messages.content.citations"] * enabled
    one, other = ({"type": "json_schema", "schema": {"type": kind}} for kind in ("object", "string"))
    chat = converted(messages=ASK, output_format=one, output_config={"format": other})
    assert chat["ignored"] == ["output_format"]
    assert chat["response_format"]["json_schema"]["schema"] == {"type": "string"}


def test_what_another_server_did_is_named() -> None:
    chat = converted(
        messages=[
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "redacted_thinking", "data": "secret", "novel": 1},
                    {"type": "thinking", "thinking": "", "signature": "theirs"},
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                    {"type": "text", "text": "found", "citations": [{}], "surprise": 1},
                ],
            },
        ],
        tools=[{"type": "web_search_20250305", "name": "web_search"}, {**TOOL, "strict": True, "novel": 1}],
        tool_choice={"type": "any", "name": "f"},
        context_management={
            "edits": [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}]
        },
    )
    assert chat["messages"][1] == {"role": "assistant", "content": "found"}
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["f"]
    assert chat["ignored"] == [
        "messages.content.redacted_thinking", "messages.content.novel", "messages.content.thinking",
        "messages.content.server_tool_use", "messages.content.web_search_tool_result", "messages.content.surprise",
        "tools.web_search_20250305", "tools.novel", "tool_choice.name",
        "context_management.edits.clear_tool_uses_20250919",
    ]  # fmt: skip


def test_our_own_redacted_thoughts_are_read() -> None:
    turn = {"role": "assistant", "content": [{"type": "redacted_thinking", "data": seal("mine")}]}
    chat = converted(messages=[*ASK, turn])
    assert (chat["messages"][1]["reasoning_content"], chat["ignored"]) == ("mine", [])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
    ],
)
def test_tool_choice(choice: Any, expected: dict[str, Any]) -> None:
    chat = converted(messages=ASK, tools=[TOOL], tool_choice=choice)
    assert {name: chat[name] for name in ("tool_choice", "parallel_tool_calls") if name in chat} == expected
    assert chat["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "does it", "parameters": {"type": "object"}}}
    ]


def test_errors_about_the_chosen_tool_name_anthropics_field() -> None:
    request = MessagesRequest.of({"messages": ASK, "tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}})
    request.chat()
    unknown = RequestError("field 'tool_choice.function.name': 'g' is unknown", param="tool_choice.function.name")
    assert request.blame(unknown).message == "field 'tool_choice.name': 'g' is unknown"


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        ({"type": "enabled", "budget_tokens": 2000}, {"enable_thinking": True, "reasoning_budget_tokens": 2000}),
        ({"type": "enabled"}, {"enable_thinking": True}),
        ({"type": "adaptive", "display": "summarized"}, {}),
        ({"type": "disabled"}, {"enable_thinking": False}),
        (None, {}),
    ],
)
def test_thinking(thinking: Any, expected: dict[str, Any]) -> None:
    chat = converted(messages=ASK, thinking=thinking)
    assert {name: chat[name] for name in ("enable_thinking", "reasoning_budget_tokens") if name in chat} == expected


def test_options() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    chat = converted(
        messages=ASK, max_tokens=7, temperature=0.5, top_p=0.9, top_k=3, stop_sequences=["x"], model="m", seed=5,
        draft="off", chat_template_kwargs={"a": 1}, metadata={"user_id": "u"}, service_tier="auto", inference_geo="eu",
        output_config={"effort": "max", "format": {"type": "json_schema", "schema": schema}},
    )  # fmt: skip
    assert {name: value for name, value in chat.items() if name != "messages"} == {
        "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop": ["x"], "model": "m", "seed": 5,
        "draft": "off", "chat_template_kwargs": {"a": 1}, "reasoning_effort": "high",
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}, "ignored": [],
    }  # fmt: skip
    assert converted(messages=ASK, output_format={"type": "json_schema", "schema": schema})["response_format"]
    assert MessagesRequest.of({"messages": ASK}).chat().given()["max_tokens"] == 4096


# ---- refusals ----


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [*ASK, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [*ASK, {"role": "assistant", "content": None}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].image"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages[0].content[0].document"),
        (
            {"messages": [{"role": "user", "content": nested(
                [], lambda inner: [{"type": "search_result", "content": inner}], 200)}]},
            "messages[0].content[0].content[0].type",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "image"}]}]}]},
            "messages[0].content[0].tool_result.content[0].image",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x"}]}]},
            "messages[0].content[0].name",
        ),
        (
            {"messages": [{"role": "assistant", "content": [
                {"type": "tool_use", "id": "x", "name": "f", "input": "{}"}]}]},
            "messages[0].content[0].input",
        ),
        ({"messages": ASK, "system": 3}, "system"),
        ({"messages": ASK, "system": [{"type": "image"}]}, "system[0].image"),
        ({"messages": ASK, "tools": {}}, "tools"),
        ({"messages": ASK, "tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"messages": ASK, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        ({"messages": ASK, "tools": [{"name": "f", "input_schema": "{}"}]}, "tools[0].input_schema"),
        ({"messages": ASK, "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"messages": ASK, "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"messages": ASK, "tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"messages": ASK, "thinking": {"type": "maybe"}}, "thinking.type"),
        ({"messages": ASK, "thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
        ({"messages": ASK, "output_config": {"effort": "some"}}, "output_config.effort"),
        ({"messages": ASK, "output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"messages": ASK, "stop_sequences": [1]}, "stop_sequences"),
        ({"messages": ASK, "stop_sequences": ["x"] * 100}, "stop_sequences"),
        ({"messages": ASK, "max_tokens": "x"}, "max_tokens"),
        ({"messages": ASK, "max_tokens": -2}, "max_tokens"),
        ({"messages": ASK, "temperature": -1}, "temperature"),
        ({"messages": ASK, "container": "c"}, "container"),
        ({"messages": ASK, "mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"messages": ASK, "thread": {"id": "t"}}, "thread"),
        ({"messages": ASK, "n": 2}, "n"),
        ({"messages": ASK, "logprobs": True}, "logprobs"),
        ({"messages": ASK, "context_management": []}, "context_management"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests(server: Live, native: FakeNative, body: dict[str, Any], param: str, stream: bool) -> None:
    native.submitted.clear()
    response = server.http.post("/v1/messages", json={"stream": stream, **body})
    assert response.status_code == 400
    told = response.json()
    assert set(told) == {"type", "error"}
    assert set(told["error"]) == {"type", "message"} | ({"details"} if param == "thread" else set())
    assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
    assert told["error"]["message"].startswith(re.sub(r"\[(\d+)\]", r".\1", param))
    assert native.submitted == []
    counted = server.http.post("/v1/messages/count_tokens", json=body)
    assert counted.status_code == 400 or param in ("stop_sequences", "temperature")


def test_strict_fields_refuse_what_would_be_ignored() -> None:
    request = MessagesRequest.of({"messages": ASK, "tools": [TOOL, {"type": "web_search_20250305", "name": "w"}]})
    with pytest.raises(RequestError, match=r"tools\.web_search_20250305"):
        request.chat(strict=True)


# ---- errors ----


def test_errors_of_the_sdk(client: anthropic.Anthropic, server: Live) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model="fake", max_tokens=9, messages=[{"role": "user", "content": "x" * 300}])
    assert caught.value.type == "invalid_request_error"
    with pytest.raises(anthropic.RequestTooLargeError):
        client.messages.create(model="fake", max_tokens=9, messages=[{"role": "user", "content": "x" * 20_000}])
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.batches.list()
    assert missing.value.body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "GET /v1/messages/batches: Not Found"},
    }
    assert server.http.get("/v1/messages").json()["error"]["type"] == "invalid_request_error"  # a method that is not
    assert server.http.post("/v1/messages", content=b"{").json()["type"] == "error"


def test_keys_and_loading() -> None:
    ready = threading.Event()

    def load(_progress: Any) -> Engine:
        ready.wait(PATIENCE)
        return Engine.over(FakeNative(script))

    with live(load, Settings(api_keys=("secret",)), wait=False) as running:
        try:
            with anthropic.Anthropic(base_url=running.url, api_key="wrong", max_retries=0) as wrong:
                with pytest.raises(anthropic.AuthenticationError) as refused:
                    wrong.messages.create(model="x", max_tokens=9, messages=ASK)
                assert refused.value.type == "authentication_error"
            with anthropic.Anthropic(base_url=running.url, api_key="secret", max_retries=0) as right:
                with pytest.raises(anthropic.ServiceUnavailableError) as loading:
                    right.messages.create(model="x", max_tokens=9, messages=ASK)
                assert loading.value.type == "overloaded_error"
                ready.set()
                wait_until(lambda: running.http.get("/health").status_code == 200)
                assert right.messages.create(model="x", max_tokens=5, messages=ASK).stop_reason == "max_tokens"
            with anthropic.Anthropic(base_url=running.url, auth_token="secret", api_key=None, max_retries=0) as bearer:
                assert bearer.messages.create(model="x", max_tokens=5, messages=ASK).stop_reason == "max_tokens"
        finally:
            ready.set()


def test_a_full_queue_is_an_overload() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(script, gate=gate)
    with live(lambda _progress: Engine.over(native, max_queue=0)) as running:
        threads = [threading.Thread(target=post, args=(running,), kwargs={"messages": ASK}) for _ in range(1)]
        threads[0].start()
        wait_until(lambda: running.engine.n_running + running.engine.n_waiting == 1)
        response = post(running, messages=ASK)
        assert (response.status_code, response.json()["error"]["type"]) == (503, "overloaded_error")
        assert int(response.headers["retry-after"]) > 0
        for _ in range(50):
            gate.release()
        threads[0].join(PATIENCE)


def test_a_stream_that_fails_ends_with_an_error() -> None:
    gate = threading.Semaphore(3)
    native = FakeNative(script, gate=gate)
    body = {"messages": [{"role": "user", "content": "wait"}], "max_tokens": 150, "stream": True}
    lines: list[str] = []
    with (
        live(lambda _progress: Engine.over(native)) as running,
        running.http.stream("POST", "/v1/messages", json=body) as response,
    ):
        for line in response.iter_lines():
            lines.append(line)
            if line == "event: content_block_delta":
                native.fail_next_pass = "the pass broke"
                gate.release(200)
    name, data = [line for line in lines if line][-2:]
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        "type": "error", "error": {"type": "api_error", "message": "the pass broke"},
    }  # fmt: skip


def test_pings_and_progress_while_a_prompt_is_read() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(script, gate=gate, n_batch=4)
    body = {"messages": ASK, "max_tokens": 9, "stream": True, "return_progress": True, "timings_per_token": True}
    with live(lambda _: Engine.over(native), Settings(defaults=Defaults(ping_interval=0.05))) as running:
        with running.http.stream("POST", "/v1/messages", json=body) as response:
            lines = response.iter_lines()
            told: set[bool] = set()
            while len(told) < 2:  # a ping may come before the progress
                name, data, end = (next(lines) for _ in range(3))
                assert (name, end) == ("event: ping", "")
                told.add("prompt_progress" in data)
                assert "prompt_progress" in data or data == 'data: {"type":"ping"}'
            gate.release(20)
            found = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        read = [event["prompt_progress"]["processed"] for event in found if "prompt_progress" in event]
        assert read == sorted(read)
        assert read[-1] == 9
        assert all(event["type"] == "ping" for event in found if "prompt_progress" in event)
        assert any("timings" in event for event in found if event["type"] == "content_block_delta")
        with anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0) as client:
            gate.release(20)
            with client.messages.stream(model="fake", max_tokens=9, messages=ASK) as stream:
                assert stream.get_final_text() == TEXT[:9]
