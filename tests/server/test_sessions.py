"""Whole conversations as Claude Code and Codex hold them, over the pocket pair: what they send is understood, what they
get is what they expect, and each turn reads only what is new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from pydantic_core import from_json

from dflash_local.server.settings import Settings
from tests.server.live import Live, live_pair

FIXTURES = Path(__file__).parent / "fixtures"
CLAUDE_CODE: dict[str, Any] = json.loads((FIXTURES / "claude_code.json").read_text(encoding="utf-8"))
CODEX: dict[str, Any] = json.loads((FIXTURES / "codex.json").read_text(encoding="utf-8"))
BRIEF: dict[str, Any] = {"temperature": 0, "max_tokens": 120}  # the pocket model has no end on its own


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[Live]:
    """With a template that knows thoughts: the pocket model thinks, its own template does not know it."""
    template = (FIXTURES / "thinking.jinja").read_text(encoding="utf-8")

    with live_pair(
        pocket["target"], pocket["dflash"], Settings(alias="pocket"), n_ctx=8192, n_slots=2, chat_template=template
    ) as running:
        yield running


def stream(server: Live, fixture: dict[str, Any], body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a request, sent with the client's own headers."""
    response = server.http.post(fixture["path"], headers=fixture["headers"], json=body)
    assert response.status_code == 200, response.text
    assert "x-dflash-ignored" not in response.headers or fixture is CODEX, response.headers
    frames = [frame for frame in response.text.split("\n\n") if frame.strip() and not frame.startswith(":")]
    return [json.loads(frame.split("data: ", 1)[1]) for frame in frames]


# ---- Claude Code ----


def message_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What Claude Code makes of a stream: the message, with the blocks that it sends back."""
    message = events[0]["message"]
    for event in events[1:]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            field = {"input_json_delta": "input", "signature_delta": "signature"}.get(delta["type"], block["type"])
            text = next(value for name, value in delta.items() if name != "type")
            block[field] = (block[field] or "") + text if field != "signature" else text
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] = event["usage"]
    for block in message["content"]:
        if block["type"] == "tool_use":
            block["input"] = from_json(block["input"], allow_partial=True)  # cut off, perhaps
    assert events[-1] == {"type": "message_stop"}
    return dict(message)


def next_turn(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Claude Code's two new messages: the answer as it came, and the tools' results or the user's next words."""
    calls = [block for block in answer["content"] if block["type"] == "tool_use"]
    content: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": "72", "is_error": False} for call in calls
    ]
    content.append({"type": "text", "text": "And 12 plus 30?", "cache_control": {"type": "ephemeral"}})
    return [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": content}]


def read(usage: dict[str, int]) -> int:
    return usage["input_tokens"] + usage["cache_read_input_tokens"]


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_claude_code(server: Live, choice: str) -> None:
    """The pocket model calls a tool wherever there is one."""
    body = {**CLAUDE_CODE["first"], **BRIEF, "tool_choice": {"type": choice}}
    first = message_of(stream(server, CLAUDE_CODE, body))
    kinds = [block["type"] for block in first["content"]]
    assert kinds[-1] == {"none": "text", "auto": "tool_use"}[choice]
    if "thinking" in kinds:  # not shown, as the client wishes, and in the prompt of the next turn all the same
        assert first["content"][0]["thinking"] == ""
    body |= CLAUDE_CODE["later"]  # another billing header: it is new in every request
    body["messages"] = [*body["messages"], *next_turn(first)]
    second = message_of(stream(server, CLAUDE_CODE, body))
    usage = second["usage"]
    # All of the first prompt, and its answer if the template writes it as the model did.
    answer = first["usage"]["output_tokens"] - 1 if choice == "none" else 0
    assert usage["cache_read_input_tokens"] >= read(first["usage"]) + answer
    assert usage["input_tokens"] < 200


def test_claude_codes_side_requests(server: Live) -> None:
    headers = CLAUDE_CODE["headers"]
    counted = server.http.post("/v1/messages/count_tokens?beta=true", headers=headers, json=CLAUDE_CODE["count"])
    assert 50 < counted.json()["input_tokens"] < 500
    refused = server.http.post(CLAUDE_CODE["path"], headers=headers, json=CLAUDE_CODE["search"])
    assert (refused.status_code, refused.json()["type"]) == (400, "error")
    assert "there is none of them here" in refused.json()["error"]["message"]


def test_a_title_is_json(server: Live) -> None:
    message = message_of(stream(server, CLAUDE_CODE, {**CLAUDE_CODE["title"], "temperature": 0, "max_tokens": 300}))
    assert message["stop_reason"] == "end_turn"
    assert list(json.loads(message["content"][0]["text"])) == ["title"]


# ---- Codex ----


def kept(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that Codex keeps of a stream: without ids, and of thoughts only what is encrypted."""
    items = []
    for event in events:
        if event["type"] == "response.output_item.done":
            item = {name: value for name, value in event["item"].items() if name not in ("id", "status")}
            if item["type"] == "reasoning":
                item["content"] = None
            if item["type"] == "message":
                item["content"] = [{"type": "output_text", "text": part["text"]} for part in item["content"]]
            items.append(item)
    return items


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_codex(server: Live, choice: str) -> None:
    body = {**CODEX["first"], "temperature": 0, "max_output_tokens": 120, "tool_choice": choice}
    events = stream(server, CODEX, body)
    first = events[-1]["response"]
    items = kept(events)
    assert items[-1]["type"] == {"none": "message", "auto": "function_call"}[choice]
    assert [tool["type"] for tool in first["tools"]] == ["function", "function", "namespace"]

    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "72"}
        for item in items
        if item["type"] == "function_call"
    ]
    more = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And 12 plus 30?"}]}
    body["input"] = [*body["input"], *items, *outputs, more]
    second = stream(server, CODEX, body)[-1]["response"]
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    usage = first["usage"]
    assert cached >= usage["input_tokens"] + (usage["output_tokens"] - 1 if choice == "none" else 0)
    assert second["usage"]["input_tokens"] - cached < 200


def test_codex_hears_what_it_offered_in_vain(server: Live) -> None:
    response = server.http.post(
        CODEX["path"], headers=CODEX["headers"], json={**CODEX["first"], "max_output_tokens": 1}
    )
    assert response.headers["x-dflash-ignored"].split(", ") == [
        "tools.local_shell", "tools.custom.apply_patch", "tools.web_search",
    ]  # fmt: skip
    probe = server.http.post(CODEX["path"], headers=CODEX["headers"], json={**CODEX["probe"], "max_output_tokens": 1})
    assert probe.status_code == 200
    assert "x-dflash-ignored" not in probe.headers


def test_codex_exec(server: Live) -> None:
    """Its instructions are a developer's message, and its items have ids."""
    body = {**CODEX["exec"], "temperature": 0, "max_output_tokens": 120, "tool_choice": "required"}
    response = server.http.post(CODEX["path"], headers=CODEX["headers"], json=body)
    assert response.headers["x-dflash-ignored"] == "tools.web_search"
    told = stream(server, CODEX, body)[-1]["response"]
    call = told["output"][-1]
    assert call["type"] == "function_call"
    assert call["name"] in ("exec_command", "get_goal", "close_agent")
    assert told["usage"]["input_tokens_details"]["cached_tokens"] > told["usage"]["input_tokens"] - 8


# ---- both ----


def test_thoughts_survive_both_ways(server: Live) -> None:
    """A second turn is the same whether thoughts were shown or hidden, come back as content or sealed."""
    ask = [{"role": "user", "content": "What is 48 plus 24?"}]
    follow = {"role": "user", "content": "And 12 plus 30?"}
    prompts = set()
    for thinking in ({"type": "adaptive"}, {"type": "adaptive", "display": "omitted"}):
        body = {"messages": ask, "thinking": thinking, **BRIEF}
        message = server.http.post("/v1/messages", json=body).json()
        assert [block["type"] for block in message["content"]] == ["thinking", "text"]
        turns = [*ask, {"role": "assistant", "content": message["content"]}, follow]
        prompts.add(server.http.post("/v1/messages/count_tokens", json={"messages": turns}).json()["input_tokens"])
    response = server.http.post("/v1/responses", json={"input": ask, "temperature": 0, "max_output_tokens": 120}).json()
    for drop in ("content", "encrypted_content"):
        thoughts = {name: value for name, value in response["output"][0].items() if name != drop}
        counted = server.http.post(
            "/v1/responses/input_tokens", json={"input": [*ask, thoughts, response["output"][1], follow]}
        )
        prompts.add(counted.json()["input_tokens"])
    assert len(prompts) == 1
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 20


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.1, "seed": 11}])
def test_drafted_text_is_plain_text(server: Live, sampling: dict[str, Any]) -> None:
    """Bit for bit, through both APIs, whole and streamed."""
    messages = {"messages": [{"role": "user", "content": "What is 48 plus 24?"}], "max_tokens": 80, **sampling}
    responses = {"input": "What is 48 plus 24?", "max_output_tokens": 80, **sampling}
    told: list[tuple[str, str]] = []
    for draft in ({"draft": "tree", "budget": 8}, {"draft": "off"}):
        whole = server.http.post("/v1/messages", json={**messages, **draft}).json()["content"]
        streamed = message_of(stream(server, CLAUDE_CODE, {**messages, **draft, "stream": True}))["content"]
        assert streamed == whole
        told.append((whole[0]["thinking"], whole[1]["text"]))
        body = server.http.post("/v1/responses", json={**responses, **draft}).json()
        assert (body["timings"]["draft_n_accepted"] > 0) == ("budget" in draft)
        events = stream(server, CODEX, {**responses, **draft, "stream": True})
        assert [item["content"] for item in events[-1]["response"]["output"]] == [
            item["content"] for item in body["output"]
        ]
        told.append((body["output"][0]["content"][0]["text"], body["output"][1]["content"][0]["text"]))
    assert len(set(told)) == 1
    assert len(told) == 4


def test_a_budget_of_thoughts(server: Live) -> None:
    def thoughts(**thinking: Any) -> str:
        body = {"messages": [{"role": "user", "content": "What is 48 plus 24?"}], "thinking": thinking, **BRIEF}
        blocks = server.http.post("/v1/messages", json=body).json()["content"]
        return next((block["thinking"] for block in blocks if block["type"] == "thinking"), "")

    assert len(thoughts(type="enabled", budget_tokens=8)) < len(thoughts(type="adaptive"))
    assert thoughts(type="disabled") == ""


def test_at_most_one_call_if_the_client_wants_one(server: Live) -> None:
    """The pocket model calls this tool for ever, which is why the test can fail."""
    schema = {"type": "object", "properties": {"city": {"enum": ["Lisbon"]}}, "required": ["city"]}
    question: Any = [{"role": "user", "content": "What is the weather in Lisbon?"}]
    message = {"messages": question, "tools": [{"name": "get_weather", "input_schema": schema}], **BRIEF}
    function = {"type": "function", "name": "get_weather", "parameters": schema}
    response = {"input": question, "tools": [function], "temperature": 0, "max_output_tokens": 120}
    for one in (False, True):
        choice = {"type": "any", "disable_parallel_tool_use": one}
        answer = server.http.post("/v1/messages", json={**message, "tool_choice": choice}).json()
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        assert (len(calls) == 1, answer["stop_reason"] == "tool_use") == (one, one)
        body = {**response, "tool_choice": "required", "parallel_tool_calls": not one}
        items = server.http.post("/v1/responses", json=body).json()["output"]
        assert ([item["type"] for item in items].count("function_call") == 1) == one


def test_a_begun_answer_is_continued(server: Live) -> None:
    """Anthropic's prefill; what the client wrote is not sent back."""
    messages: Any = [{"role": "user", "content": "What is 48 plus 24?"}, {"role": "assistant", "content": "48 + 24 ="}]
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        greedy = {"temperature": 0}
        answer = client.messages.create(model="pocket", max_tokens=20, messages=messages, extra_body=greedy)
    assert answer.content[0].type == "text"
    assert not answer.content[0].text.startswith("48")
    whole = server.openai.chat.completions.create(model="pocket", max_tokens=20, temperature=0, messages=messages)
    assert answer.content[0].text == whole.choices[0].message.content


def test_a_full_context_is_told_apart(pocket: dict[str, Path]) -> None:
    ask = {"messages": [{"role": "user", "content": "What is 48 plus 24?"}], "ignore_eos": True}
    with live_pair(pocket["target"], n_ctx=64, n_slots=1) as small:
        full, short = (small.http.post("/v1/messages", json={**ask, "max_tokens": limit}).json() for limit in (900, 9))
    assert (full["stop_reason"], short["stop_reason"]) == ("model_context_window_exceeded", "max_tokens")
    assert read(full["usage"]) + full["usage"]["output_tokens"] >= 64


def test_errors_of_the_model_name_the_field(server: Live) -> None:
    """By the name that it has in the format, and at its place among the tools that were sent."""
    skipped = {"type": "web_search_20250305", "name": "web_search"}
    tools = [skipped, {"name": "f", "input_schema": {"type": "nonsense"}}]
    functions: Any = [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {"type": "nonsense"}}]
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools, "max_tokens": 9}
    told = server.http.post("/v1/messages", json=body).json()["error"]
    assert told["type"] == "invalid_request_error"
    assert "tools.1.input_schema" in told["message"]
    with pytest.raises(openai.BadRequestError, match=r"tools\[1\]\.parameters") as refused:
        server.openai.responses.create(model="pocket", input="hi", tools=functions)
    assert refused.value.param == "tools[1].parameters.type"
    form = {"type": "json_schema", "schema": {"type": "nonsense"}}
    answer = server.http.post("/v1/messages", json={**body, "tools": [], "output_config": {"format": form}})
    assert "output_config.format.schema" in answer.json()["error"]["message"]
    answer = server.http.post("/v1/responses", json={"input": "hi", "text": {"format": {**form, "name": "x"}}})
    assert answer.json()["error"]["param"] == "text.format.schema.type"
