"""Qwen2.5-Coder itself, over HTTP: its calls are calls in each API, whole and in a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dflash_local.server.settings import Settings
from tests.coder_file import coder_file
from tests.server.live import Live, live_pair

pytestmark = pytest.mark.slow

ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
WHAT: dict[str, Any] = {"name": "get_weather", "description": "Tells the weather in a city."}
TAKES = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = [{"type": "function", "function": {**WHAT, "parameters": TAKES}}]
CALL = ("get_weather", {"city": "Paris"})


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live_pair(coder_file(), settings=Settings(alias="coder"), n_ctx=4096, n_slots=1) as running:
        yield running


def post(server: Live, path: str, **body: Any) -> Any:
    response = server.http.post(path, json=body, timeout=300)
    assert response.status_code == 200, response.text
    return response


def test_chat(server: Live) -> None:
    (choice,) = post(server, "/v1/chat/completions", messages=ASK, tools=FUNCTION, temperature=0).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == CALL


def test_stream(server: Live) -> None:
    text = post(server, "/v1/chat/completions", messages=ASK, tools=FUNCTION, temperature=0, stream=True).text
    chunks = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    functions = [part["function"] for delta in deltas for part in delta.get("tool_calls", [])]
    assert "".join(part.get("name") or "" for part in functions) == CALL[0]
    assert json.loads("".join(part.get("arguments") or "" for part in functions)) == CALL[1]
    assert not "".join(delta.get("content") or "" for delta in deltas).strip()


def test_messages(server: Live) -> None:
    tools = [{**WHAT, "input_schema": TAKES}]
    body = post(server, "/v1/messages", messages=ASK, tools=tools, temperature=0, max_tokens=200).json()
    assert [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"] == [CALL]
    assert body["stop_reason"] == "tool_use"


def test_responses(server: Live) -> None:
    tools = [{"type": "function", **WHAT, "parameters": TAKES}]
    output = post(server, "/v1/responses", input=ASK, tools=tools, temperature=0).json()["output"]
    calls = [(item["name"], json.loads(item["arguments"])) for item in output if item["type"] == "function_call"]
    assert calls == [CALL]


def test_ollama(server: Live) -> None:
    options = {"temperature": 0}
    body = post(server, "/api/chat", model="coder", messages=ASK, tools=FUNCTION, options=options, stream=False).json()
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in body["message"]["tool_calls"]]
    assert calls == [CALL]


def test_props(server: Live) -> None:
    props = server.http.get("/props").json()
    assert "```tool_call" in props["chat_template"]
    assert props["dflash"]["fenced_calls"] is True
