"""OpenAI's responses over a scripted engine: conversion, items, events, refusals, errors."""

from __future__ import annotations

import json
import threading
from typing import Any, cast
from unittest.mock import Mock

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from pydantic import TypeAdapter

from dflash_local.conversation import ChatCompletion
from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.generation import Chunk
from dflash_local.server.fields.request import Defaults
from dflash_local.server.fields.responses import ResponsesRequest
from dflash_local.server.formats.responses import ResponsesReply
from dflash_local.server.settings import Settings
from dflash_local.server.shapes.responses import ResponseAnswer, ResponseEvent
from dflash_local.server.thoughts import seal, unseal
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.conftest import TEXT, named_events, script
from tests.server.live import Live, cancels, live

FUNCTION: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
OURS = ("timings", "dflash", "prompt_progress")
EVENTS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def post(server: Live, **body: Any) -> Any:
    return server.http.post("/v1/responses", json=body)


def events(server: Live, **body: Any) -> list[dict[str, Any]]:
    """A stream's events, each of a type that the openai package knows."""
    response = post(server, stream=True, **body)
    assert response.headers["content-type"].startswith("text/event-stream")
    parsed = named_events(response.text)
    for event in parsed:
        EVENTS.validate_python({key: value for key, value in event.items() if key not in OURS}, strict=True)
    assert [event["sequence_number"] for event in parsed] == list(range(len(parsed)))
    return parsed


# ---- answers ----


def test_a_response_is_what_the_sdk_expects(server: Live) -> None:
    body = post(server, input="hi", instructions="be", metadata={"a": "b"}, max_output_tokens=90, user="u").json()
    assert body.pop("timings")["predicted_n"] == 26
    assert body.pop("dflash")["passes_n"] == 7
    assert body.pop("store") is False
    response = Response.model_validate(body, strict=True, extra="forbid")
    assert response.id.startswith("resp_")
    assert (response.status, response.incomplete_details, response.error) == ("completed", None, None)
    assert response.output_text == TEXT
    (item,) = response.output
    assert item.type == "message"
    assert item.id.startswith("msg_")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (20, 26, 46)
    assert response.usage.output_tokens_details.reasoning_tokens == 0
    assert (response.instructions, response.metadata, response.max_output_tokens) == ("be", {"a": "b"}, 90)
    assert (response.temperature, response.top_p, response.user) == (0.8, 0.95, "u")
    assert response.completed_at is not None


def test_items(server: Live) -> None:
    body = post(server, input="call", tools=[FUNCTION]).json()
    for name in ("timings", "dflash", "store"):
        body.pop(name)
    response = Response.model_validate(body, strict=True, extra="forbid")
    thoughts, message, call = response.output
    assert (thoughts.type, message.type, call.type) == ("reasoning", "message", "function_call")
    assert thoughts.content[0].text == "hm"  # type: ignore[union-attr, index]
    assert unseal(thoughts.encrypted_content) == "hm"  # type: ignore[union-attr, arg-type]
    assert (call.name, call.arguments, call.call_id) == ("f", '{"a": 1}', "id0")  # type: ignore[union-attr]
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == len("<think>hm")


def test_a_stream_is_the_same_response(server: Live) -> None:
    for question in ("hi", "think", "call", "call twice"):
        whole = server.openai.responses.create(model="fake", input=question, tools=[FUNCTION])
        with server.openai.responses.stream(model="fake", input=question, tools=[FUNCTION]) as stream:
            streamed = stream.get_final_response()
        drop: Any = {"id": True, "created_at": True, "completed_at": True, "timings": True, "dflash": True}
        items: Any = {"__all__": {"id": True, "parsed_arguments": True, "content": {"__all__": {"parsed"}}}}
        left, right = (made.model_dump(exclude=drop | {"output": items}) for made in (streamed, whole))
        assert left == right, question


def test_events(server: Live) -> None:
    found = events(server, input="call", tools=[FUNCTION])
    assert [(event["type"].removeprefix("response."), event.get("output_index")) for event in found] == [
        ("created", None), ("in_progress", None),
        ("output_item.added", 0), ("content_part.added", 0), ("reasoning_text.delta", 0), ("reasoning_text.done", 0),
        ("content_part.done", 0), ("output_item.done", 0),
        ("output_item.added", 1), ("content_part.added", 1), ("output_text.delta", 1), ("output_text.done", 1),
        ("content_part.done", 1), ("output_item.done", 1),
        ("output_item.added", 2), ("function_call_arguments.delta", 2), ("function_call_arguments.delta", 2),
        ("function_call_arguments.done", 2), ("output_item.done", 2), ("completed", None),
    ]  # fmt: skip
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert found[-1]["response"]["output"] == done
    assert found[-1]["timings"]["predicted_n"] == found[-1]["response"]["usage"]["output_tokens"] > 20
    for event in found:
        if "item_id" in event:
            assert event["item_id"] == done[event["output_index"]]["id"]
        if event["type"].startswith(("response.output_text", "response.reasoning_text", "response.content_part")):
            assert event["content_index"] == 0
    assert found[0]["response"]["status"] == found[1]["response"]["status"] == "in_progress"
    added = [event["item"] for event in found if event["type"] == "response.output_item.added"]
    assert [item["status"] for item in added] == ["in_progress"] * 3


def test_arguments_belong_to_their_call_in_any_order() -> None:
    def part(index: int, arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "id": "c", "function": {"name": "f", "arguments": arguments}}]}

    with Engine.over(FakeNative()) as engine:
        completion = engine.generate("x")
    parser, echo = Mock(), dict[str, Any]()
    parser.push.return_value = [part(0, "{"), part(1, "["), part(0, "}"), part(1, "]")]
    parser.finish.return_value = [], ChatCompletion({}, "tool_calls", completion)
    reply = ResponsesReply("fake", parser, echo=cast(Any, echo), names={}, count=lambda _text, _completion: 0)
    found: list[Any] = [*reply.chunk(0, Chunk("x", [1], None)), *reply.end(0, completion)]
    said = ["", ""]
    for event in found:
        if event["type"] == "response.function_call_arguments.delta":
            said[event["output_index"]] += event["delta"]
    assert said == [item["arguments"] for item in found[-1]["response"]["output"]] == ["{}", "[]"]


def test_an_incomplete_answer(server: Live) -> None:
    whole = post(server, input="hi", max_output_tokens=5).json()
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert whole["output"][0]["status"] == "incomplete"
    last = events(server, input="hi", max_output_tokens=5)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["output"][0]["content"][0]["text"] == "hello"
    assert last["response"]["status"] == "incomplete"


def test_the_models_of_the_docs_fit(server: Live) -> None:
    TypeAdapter(ResponseAnswer).validate_python(post(server, input="call", tools=[FUNCTION]).json())
    for event in events(server, input="call", tools=[FUNCTION]):
        TypeAdapter(ResponseEvent).validate_python(event)


def test_namespaces(server: Live) -> None:
    """The functions of MCP servers, as Codex sends them."""
    tools = [{"type": "namespace", "name": "mcp__shop__", "description": "", "tools": [{**FUNCTION, "name": "buy"}]}]
    request = ResponsesRequest.of({
        "input": [
            {"type": "function_call", "call_id": "c", "name": "buy", "namespace": "mcp__shop__", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
        ],
        "tools": tools,
        "tool_choice": {"type": "function", "name": "buy", "namespace": "mcp__shop__"},
    })  # fmt: skip
    chat = request.chat().given()
    assert chat["tools"][0]["function"]["name"] == "mcp__shop__buy"
    assert chat["messages"][0]["tool_calls"][0]["function"]["name"] == "mcp__shop__buy"
    assert chat["tool_choice"]["function"]["name"] == "mcp__shop__buy"
    for item in (
        post(server, input="call", tools=tools).json()["output"][-1],
        events(server, input="call", tools=tools)[-1]["response"]["output"][-1],
    ):
        assert (item["name"], item["namespace"]) == ("buy", "mcp__shop__")
    assert "namespace" not in post(server, input="call", tools=[FUNCTION]).json()["output"][-1]
    assert request.names["mcp__shop__buy"] == ("buy", "mcp__shop__")


def test_skipped_tools_are_named(server: Live) -> None:
    tools = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"}, FUNCTION]
    response = post(server, input="hi", tools=tools, store=True, truncation="auto", include=["new.thing"], novel=1)
    assert response.headers["x-dflash-ignored"].split(", ") == [
        "novel", "tools.web_search", "tools.custom.apply_patch", "tools.local_shell", "store", "truncation",
        "include.new.thing",
    ]  # fmt: skip
    assert [tool["name"] for tool in response.json()["tools"]] == ["f"]
    assert (
        "x-dflash-ignored" not in post(server, input="hi", store=False, include=["reasoning.encrypted_content"]).headers
    )


def test_input_tokens(server: Live) -> None:
    counted = server.openai.responses.input_tokens.count(model="fake", input="hi", instructions="be", tools=[FUNCTION])
    assert counted.input_tokens == len("system: be\nuser: hi\n")
    body = server.http.post("/responses/input_tokens", json={"input": "hi"}).json()
    InputTokenCountResponse.model_validate(body, strict=True, extra="forbid")
    for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
        body = server.http.post(path, json={"messages": [{"role": "user", "content": "hi"}]}).json()
        assert body == {"object": "response.input_tokens", "input_tokens": 9}


def test_nothing_is_stored(server: Live) -> None:
    assert server.http.post("/responses", json={"input": "hi"}).json()["store"] is False
    for ask in (
        lambda: server.openai.responses.retrieve("resp_x"),
        lambda: server.openai.responses.delete("resp_x"),
        lambda: server.openai.responses.cancel("resp_x"),
        lambda: server.openai.responses.input_items.list("resp_x"),
        lambda: server.openai.responses.compact(model="m", input="hi"),
    ):
        with pytest.raises(openai.NotFoundError, match="here"):
            ask()


# ---- conversion ----


def converted(input: Any, **body: Any) -> dict[str, Any]:
    request = ResponsesRequest.of({"input": input, **body})
    chat = request.chat()
    return {**chat.given(), "ignored": request.ignored + chat.ignored}


def message(role: str, *texts: str, kind: str = "input_text", **more: Any) -> dict[str, Any]:
    content = [{"type": kind, "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content, **more}


def test_a_conversation_as_codex_sends_it() -> None:
    chat = converted(
        [
            message("developer", "permissions"),
            message("user", "<environment_context>"),
            message("user", "do it"),
            {"type": "reasoning", "id": "rs", "summary": [], "content": None, "encrypted_content": seal("hm")},
            message("assistant", "Doing it.", kind="output_text", id="msg", status="completed", phase="commentary"),
            {"type": "function_call", "id": "fc", "call_id": "c1", "name": "shell", "arguments": '{"a":1}'},
            {"type": "local_shell_call", "call_id": "c2", "status": "completed", "action": {"type": "exec"}},
            {"type": "custom_tool_call", "call_id": "c3", "name": "apply_patch", "input": "***"},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]},
            {"type": "custom_tool_call_output", "call_id": "c3", "output": "patched"},
            {"role": "developer", "content": "from now on"},
            {"role": "user", "content": "and?"},
        ],
        instructions="You are",
    )
    assert chat["messages"] == [
        {"role": "system", "content": "You are\npermissions"},
        {"role": "user", "content": "<environment_context>\ndo it"},
        {
            "role": "assistant",
            "content": "Doing it.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "local_shell", "arguments": '{"type": "exec"}'}},
                {"id": "c3", "type": "function", "function": {"name": "apply_patch", "arguments": '{"input": "***"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c2", "content": "x"},
        {"role": "tool", "tool_call_id": "c3", "content": "patched"},
        {"role": "user", "content": "from now on\nand?"},
    ]
    assert chat["ignored"] == []


def test_thoughts() -> None:
    def thoughts(**item: Any) -> tuple[Any, list[str]]:
        chat = converted(["placeholder", {"type": "reasoning", "summary": [], **item}][1:] + [message("user", "x")])
        return chat["messages"][0].get("reasoning_content"), chat["ignored"]

    assert thoughts(content=[{"type": "reasoning_text", "text": "a"}, {"type": "text", "text": "b"}]) == ("ab", [])
    assert thoughts(content=[{"type": "reasoning_text", "text": "a"}], encrypted_content=seal("b")) == ("a", [])
    assert thoughts(encrypted_content=seal("b")) == ("b", [])
    assert thoughts(encrypted_content="gAAAA") == (None, ["input.reasoning"])
    assert thoughts(encrypted_content="") == (None, [])
    assert thoughts(summary=[{"type": "summary_text", "text": "in short"}]) == (None, ["input.reasoning"])
    assert thoughts(content=[{"type": "reasoning_text", "text": "a", "novel": 1}]) == ("a", ["input.content.novel"])
    assert thoughts(encrypted_content="dflash1.\xff") == (None, ["input.reasoning"])


def test_the_assistants_last_item_is_answered() -> None:
    asked, said = message("user", "hi"), message("assistant", "It is", kind="output_text")
    assert converted([asked, said])["continue_final_message"] is False
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    for items in ([asked], [asked, said, asked], [asked, said, call]):
        assert "continue_final_message" not in converted(items)


def test_a_user_may_say_nothing() -> None:
    asked, said, nothing = message("user", "hi"), message("assistant", "a", kind="output_text"), message("user")
    assert converted([nothing])["messages"] == [{"role": "user", "content": ""}]
    chat = converted([asked, said, nothing])
    assert chat["messages"][-1] == {"role": "user", "content": ""}
    assert "continue_final_message" not in chat


def test_what_another_server_did_is_named() -> None:
    chat = converted([
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {}},
        {"type": "image_generation_call", "id": "ig", "status": "completed", "result": ""},
        {"type": "tool_search_output", "tools": []},
        message("user", "hi", surprise=1),
    ])  # fmt: skip
    assert chat["messages"] == [{"role": "user", "content": "hi"}]
    assert chat["ignored"] == [
        "input.web_search_call", "input.image_generation_call", "input.tool_search_output", "input.surprise",
    ]  # fmt: skip


def test_options() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    chat = converted(
        "hi", max_output_tokens=7, temperature=0.5, top_p=0.9, model="m", seed=5, draft="off", metadata={"a": "b"},
        reasoning={"effort": "low", "summary": "auto"}, parallel_tool_calls=False, prompt_cache_key="k",
        stream_options={"include_obfuscation": False}, service_tier="auto", max_tool_calls=3, store=False,
        text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}, "verbosity": "low"},
        background=False, previous_response_id=None, truncation="disabled", tools=[FUNCTION], tool_choice="required",
    )  # fmt: skip
    chat.pop("tools")
    assert {name: value for name, value in chat.items() if name != "messages"} == {
        "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "model": "m", "seed": 5, "draft": "off",
        "reasoning_effort": "low", "parallel_tool_calls": False, "tool_choice": "required",
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}, "ignored": [],
    }  # fmt: skip


NAMED = {"type": "function", "name": "g"}


@pytest.mark.parametrize(
    ("choice", "expected", "tools"),
    [
        ("auto", "auto", ["f", "g"]),
        ("none", "none", ["f", "g"]),
        (NAMED, {"type": "function", "function": {"name": "g"}}, ["f", "g"]),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]},
            },
            ["f", "g"],
        ),
    ],
)
def test_tool_choice(choice: Any, expected: Any, tools: list[str]) -> None:
    chat = converted("hi", tools=[FUNCTION, {**FUNCTION, "name": "g"}], tool_choice=choice)
    assert chat["tool_choice"] == expected
    assert [tool["function"]["name"] for tool in chat["tools"]] == tools


# ---- refusals ----


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["hi"]}, "input[0]"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "message", "role": "assistant", "content": None}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].image_url"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "novel"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "novel"}]}, "input[0].type"),
        ({"input": [{"id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].id"),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]},
            "input[0].output[0].image_url",
        ),
        ({"input": "hi", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "hi", "conversation": "conv_1"}, "conversation"),
        ({"input": "hi", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "hi", "background": True}, "background"),
        ({"input": "hi", "n": 2}, "n"),
        ({"input": "hi", "top_logprobs": 3}, "top_logprobs"),
        ({"input": "hi", "include": ["message.output_text.logprobs"]}, "include"),
        ({"input": "hi", "max_output_tokens": "x"}, "max_output_tokens"),
        ({"input": "hi", "truncation": "some"}, "truncation"),
        ({"input": "hi", "metadata": []}, "metadata"),
        ({"input": "hi", "tools": {}}, "tools"),
        ({"input": "hi", "tools": [{"name": "f"}]}, "tools[0].type"),
        ({"input": "hi", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "hi", "tools": [FUNCTION], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"input": "hi", "tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
        ({"input": "hi", "tools": [FUNCTION], "tool_choice": "f"}, "tool_choice"),
        ({"input": "hi", "tools": [FUNCTION], "tool_choice": 3}, "tool_choice"),
        ({"input": "hi", "text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"input": "hi", "text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"input": "hi", "reasoning": {"effort": 3}}, "reasoning.effort"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests(server: Live, native: FakeNative, body: dict[str, Any], param: str, stream: bool) -> None:
    native.submitted.clear()
    response = post(server, stream=stream, **body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert native.submitted == []


def test_strict_fields_refuse_what_would_be_ignored() -> None:
    request = ResponsesRequest.of({"input": "hi", "tools": [{"type": "web_search"}]})
    with pytest.raises(RequestError, match=r"tools\.web_search"):
        request.chat(strict=True)


# ---- errors ----


def test_a_prompt_that_is_too_long(server: Live) -> None:
    """Codex shortens its conversation when a stream fails with this code."""
    with pytest.raises(openai.BadRequestError) as caught:
        server.openai.responses.create(model="fake", input="x" * 300)
    assert caught.value.code == "context_length_exceeded"
    kinds = [event.type for event in server.openai.responses.create(model="fake", input="x" * 300, stream=True)]
    assert kinds == ["response.created", "response.in_progress", "response.failed"]
    response = post(server, input="x" * 300, stream=True)
    failed = json.loads(response.text.strip().split("\n")[-1].removeprefix("data: "))
    assert failed["response"]["error"]["code"] == "context_length_exceeded"
    assert failed["sequence_number"] == 2


def test_a_stream_that_fails_ends_with_response_failed() -> None:
    gate = threading.Semaphore(3)
    native = FakeNative(script, gate=gate)
    with live(lambda _progress: Engine.over(native)) as running:
        stream = running.openai.responses.create(model="fake", input="wait", max_output_tokens=150, stream=True)
        for event in stream:
            if event.type == "response.output_text.delta":
                native.fail_next_pass = "the pass broke"
                gate.release(200)
        assert event.type == "response.failed"
        assert event.response.status == "failed"
        assert event.response.error is not None
        assert (event.response.error.code, event.response.error.message) == ("server_error", "the pass broke")


def test_a_client_that_leaves_frees_its_slot() -> None:
    gate = threading.Semaphore(3)
    native = FakeNative(script, gate=gate)
    with live(lambda _progress: Engine.over(native)) as running:
        left = cancels(running)
        with running.http.stream("POST", "/v1/responses", json={"input": "wait", "stream": True}) as response:
            next(response.iter_lines())
        assert left.wait(PATIENCE)
        gate.release(200)
        wait_until(lambda: running.engine.n_running == 0)
        assert native.cancelled == [0]


def test_pings_and_progress_while_a_prompt_is_read() -> None:
    """Pings are events that every client knows: there are some that wait for events, not for bytes."""
    gate = threading.Semaphore(0)
    native = FakeNative(script, gate=gate, n_batch=4)
    body = {"input": "hi", "max_output_tokens": 9, "return_progress": True, "timings_per_token": True}
    with live(lambda _: Engine.over(native), Settings(defaults=Defaults(ping_interval=0.05))) as running:
        threading.Timer(0.3, gate.release, [20]).start()
        found = events(running, **body)
        kinds = [event["type"].removeprefix("response.") for event in found]
        assert kinds[:3] == ["created", "in_progress", "in_progress"]
        assert kinds.count("created") == 1
        read = [event["prompt_progress"]["processed"] for event in found if "prompt_progress" in event]
        assert read == sorted(read)
        assert read[-1] == 9
        assert all("timings" in event for event in found if event["type"] == "response.output_text.delta")
        threading.Timer(0.3, gate.release, [20]).start()
        with running.openai.responses.stream(model="fake", input="think") as stream:
            assert stream.get_final_response().output_text == "It is so."
