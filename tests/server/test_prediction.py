"""OpenAI's `prediction` over HTTP: its shapes, what `usage` says of it, what is refused; and a model that quotes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.server.settings import Settings
from tests.fake_native import EOG, FakeNative
from tests.server.live import Live, live, live_pair

TEXT = "hello world"
MESSAGES: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def native() -> FakeNative:
    return FakeNative(lambda _: [[*TEXT.encode(), EOG]], n_ctx_slot=64)


@pytest.fixture(scope="module")
def server(native: FakeNative) -> Iterator[Live]:
    with live(lambda _progress: Engine.over(native), Settings(alias="fake")) as running:
        yield running


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/completion"])
@pytest.mark.parametrize(
    "content",
    ["hello <tool_call>", [{"type": "text", "text": "hello "}, {"type": "text", "text": "<tool_call>"}]],
    ids=["text", "parts"],
)
def test_shapes(server: Live, native: FakeNative, path: str, content: Any) -> None:
    body = {"messages": MESSAGES, "prompt": "hi", "prediction": {"type": "content", "content": content}}
    assert server.http.post(path, json=body).status_code == 200
    assert bytes(native.prepared[-1].prediction) == b"hello <tool_call>"  # text, not a control token


@pytest.mark.parametrize(("why", "told"), [("", None), ("lookup is off", "prediction, lookup")])
def test_where_nothing_can_be_drafted_it_is_ignored(why: str, told: str | None) -> None:
    """And the answer says so."""
    native = FakeNative(info={"no_draft": why})
    wanted: dict[str, Any] = {"lookup": True, "prediction": {"type": "content", "content": "hello"}}
    with live(lambda _progress: Engine.over(native), Settings(alias="fake")) as server:
        for path, begin in (("chat/completions", {"messages": MESSAGES}), ("completions", {"prompt": "hi"})):
            for sent, ignored in (({}, None), ({"lookup": False}, None), (wanted, told)):
                answer = server.http.post(f"/v1/{path}", json={**begin, **sent}).raise_for_status()
                assert answer.headers.get("x-dflash-ignored") == ignored


@pytest.mark.parametrize("prediction", [None, {"type": "content", "content": ""}, {"type": "content", "content": []}])
def test_nothing_predicted(server: Live, native: FakeNative, prediction: Any) -> None:
    answer = server.http.post("/v1/chat/completions", json={"messages": MESSAGES, "prediction": prediction})
    assert native.prepared[-1].prediction == []
    assert answer.json()["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_usage(server: Live) -> None:
    prediction: Any = {"type": "content", "content": "hello there"}
    options: Any = {"model": "fake", "messages": MESSAGES, "prediction": prediction, "n": 2}
    usage = server.openai.chat.completions.create(**options).usage
    assert usage and usage.completion_tokens_details
    assert usage.completion_tokens_details.accepted_prediction_tokens == 2 * len("hello ")
    assert usage.completion_tokens_details.rejected_prediction_tokens == 2 * len("there")
    events = list(server.openai.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert events[-1].usage == usage


@pytest.mark.parametrize(
    "prediction",
    [
        "text",
        {},
        {"type": "content"},
        {"type": "text", "content": "x"},
        {"type": "content", "content": 3},
        {"type": "content", "content": [{"type": "image_url", "image_url": {}}]},
        {"type": "content", "content": ["x"]},
        {"type": "content", "content": "x" * 65},
    ],
    ids=lambda value: str(value)[:60],
)
def test_refusals(server: Live, prediction: Any) -> None:
    response = server.http.post("/v1/chat/completions", json={"messages": MESSAGES, "prediction": prediction})
    assert response.status_code == 400 and response.json()["error"]["param"].startswith("prediction"), response.text


def test_what_nobody_knows_of_it(server: Live) -> None:
    prediction = {"type": "content", "content": "x", "weight": 2}
    answer = server.http.post("/v1/chat/completions", json={"messages": MESSAGES, "prediction": prediction})
    assert answer.headers["X-DFlash-Ignored"] == "prediction.weight"


@pytest.mark.parametrize("drafter", ["dflash", None])
def test_a_model_quotes_it(pocket: dict[str, Path], drafter: str | None) -> None:
    with live_pair(pocket["target"], pocket[drafter] if drafter else None, n_ctx=2048) as server:
        messages = [{"role": "user", "content": "Write a Python function that filters limits above 37."}]
        body: dict[str, Any] = {"messages": messages, "temperature": 0, "max_tokens": 200, "ignore_eos": True}
        body["budget"] = 64
        first = server.http.post("/v1/chat/completions", json=body).json()
        text = first["choices"][0]["message"]["content"]
        body["prediction"] = {"type": "content", "content": text.replace("37", "52")}
        second = server.http.post("/v1/chat/completions", json=body).json()
    assert second["choices"] == first["choices"]
    details = second["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > 0.8 * second["usage"]["completion_tokens"]
    assert details["rejected_prediction_tokens"] > 0
    assert second["dflash"]["passes_n"] < 0.5 * first["dflash"]["passes_n"]
