"""Thoughts of a running chat completion are ended by its id."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.server.running_chats import RunningChats
from tests.engine.test_chat_shim import THINKING
from tests.fake_native import FakeNative
from tests.server.live import Live, live, live_pair

PATH = "/v1/chat/completions/control"
MESSAGES: Any = [{"role": "user", "content": "What is 48 plus 24?"}]


@pytest.fixture
def gate() -> threading.Semaphore:
    return threading.Semaphore(0)


@pytest.fixture
def native(gate: threading.Semaphore) -> FakeNative:
    return FakeNative(b"hello" * 400, gate=gate, n_slots=2)


@pytest.fixture
def server(native: FakeNative) -> Iterator[Live]:
    with live(lambda _progress: Engine.over(native)) as running:
        yield running


def end(server: Live, chat_id: str) -> dict[str, Any]:
    body = {"id": chat_id, "action": "reasoning_end", "model": "any"}
    answer: dict[str, Any] = server.http.post(PATH, json=body).raise_for_status().json()
    return answer


def ids(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))["id"]


def test_a_running_chat_is_found_by_its_id(server: Live, native: FakeNative, gate: threading.Semaphore) -> None:
    body = {"messages": MESSAGES, "stream": True, "n": 2, "reasoning_control": True}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert "x-dflash-ignored" not in answer.headers
        gate.release()
        lines = answer.iter_lines()  # kept: its end is the stream's
        chat_id = next(ids(lines))
        for thoughtless, expected in ((False, True), (True, False)):
            native.thoughtless = thoughtless
            got: list[dict[str, Any]] = []
            asking = threading.Thread(target=lambda got=got: got.append(end(server, chat_id)))
            asking.start()
            while asking.is_alive():
                gate.release()  # it is done between two steps
                asking.join(0.01)
            assert got[0]["success"] is expected
            assert ("message" in got[0]) is not expected
        assert {0, 1} >= set(native.ended) != set()
        gate.release(1000)
        assert {chat_id} == set(ids(lines))
    assert end(server, chat_id) == {"success": False, "message": "no active completion for this id"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"action": "reasoning_end"}, "id"),
        ({"id": 7, "action": "reasoning_end"}, "id"),
        ({"id": "chatcmpl-1"}, "action"),
        ({"id": "chatcmpl-1", "action": "stop"}, "action"),
    ],
)
def test_refusals(server: Live, body: dict[str, Any], param: str) -> None:
    answer = server.http.post(PATH, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_an_unknown_chat_is_no_error(server: Live) -> None:
    assert not end(server, "chatcmpl-unknown")["success"]


def test_what_is_done_is_forgotten() -> None:
    class Running:
        done = False

    chats, first = RunningChats(), Running()
    chats.add("a", [first])  # type: ignore[list-item]
    assert len(chats.get("a")) == 1
    first.done = True
    assert chats.get("a") == []
    chats.add("b", [Running()])  # type: ignore[list-item]
    assert [*chats._generations] == ["b"]


def test_the_pocket_model_answers_when_its_thoughts_are_ended(pocket: dict[str, Path]) -> None:
    template = THINKING.replace("assistant\\n' }}{%- if enable", "assistant\\n<think>\\n' }}{%- if enable")

    body = {"messages": MESSAGES, "stream": True, "ignore_eos": True, "temperature": 0, "max_tokens": 2000}
    body["reasoning_budget_message"] = " That is enough."
    with (
        live_pair(pocket["target"], pocket["dflash"], n_ctx=4096, chat_template=template) as server,
        server.http.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        thoughts, content, asked = "", "", False
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            delta = event["choices"][0]["delta"]
            thoughts += delta.get("reasoning_content") or ""
            content += delta.get("content") or ""
            if thoughts and not asked:
                asked = True
                assert end(server, event["id"]) == {"success": True}
            if content:
                break
        assert thoughts.rstrip().endswith(" That is enough.")
        assert content
