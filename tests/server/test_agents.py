"""Agents that talk by chat completions, as they did when `dflash-local launch` had started them: nothing that they send
is unknown, a tool is called, its result is understood, and each turn reads only what is new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.server.settings import Settings
from tests.server.live import Live, live_pair

AGENTS: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures" / "agents.json").read_text(encoding="utf-8"))
AGENTS.pop("about")
# The pocket model has no end on its own, and calls tools when asked for the weather.
BRIEF = {"temperature": 0, "max_tokens": 120}


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[Live]:
    with live_pair(pocket["target"], pocket["dflash"], Settings(alias="pocket"), n_ctx=4096, n_slots=1) as running:
        yield running


def answer(server: Live, agent: dict[str, Any], body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message that the client makes of a stream, and its usage."""
    response = server.http.post(agent["path"], headers=agent["headers"], json={**body, **BRIEF})
    assert response.status_code == 200, response.text
    assert "x-dflash-ignored" not in response.headers, response.headers
    *events, end = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert end == "[DONE]"
    chunks = [json.loads(event) for event in events]
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": []}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        message["content"] += choice["delta"].get("content") or ""
        for part in choice["delta"].get("tool_calls", []):
            if part["index"] == len(message["tool_calls"]):
                message["tool_calls"].append(part)
            else:
                message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    usage: dict[str, Any] = next((chunk["usage"] for chunk in chunks if chunk.get("usage")), {})
    assert bool(usage) == ("stream_options" in body)
    return message, usage


@pytest.mark.parametrize("name", [name for name, agent in AGENTS.items() if "tools" in agent["first"]])
def test_a_tool_is_called(server: Live, name: str) -> None:
    agent = AGENTS[name]
    body = dict(agent["first"])
    message, usage = answer(server, agent, body)
    called = {call["function"]["name"] for call in message["tool_calls"]}
    assert called and called <= {tool["function"]["name"] for tool in body["tools"]}
    for call in message["tool_calls"]:
        call.pop("index")
        call["function"]["arguments"] = "{}"  # cut off, perhaps
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "72"} for call in message["tool_calls"]]
    body["messages"] = [*body["messages"], message, *results]
    _, later = answer(server, agent, body)
    assert later["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 1


def test_opencode_asks_for_a_title(server: Live) -> None:
    message, _ = answer(server, AGENTS["opencode"], AGENTS["opencode"]["title"])
    assert message["content"] and not message["tool_calls"]


def test_aider(server: Live) -> None:
    """It has no tools: edits are in the text."""
    message, _ = answer(server, AGENTS["aider"], AGENTS["aider"]["first"])
    assert message["content"] and not message["tool_calls"]
