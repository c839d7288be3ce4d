"""A server over a scripted engine, one for each file of tests; a file may have a `native` or a `server` of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.server.security.limits import Limits
from dflash_local.server.settings import Settings
from tests.fake_native import CONTROL, EOG, FakeNative, bytes_in_blocks
from tests.server.live import Live, live

TEXT = "hello world, said the fake"


def script(prompt: bytes) -> list[list[int]]:
    """Thoughts, calls of tools, or a long answer, if the prompt says so."""
    if b"call twice" in prompt:
        return [[*b"ok"], [CONTROL, *b'{"a"'], [*b": 1}"], [CONTROL, *b'{"b": 2}', EOG]]
    if b"call" in prompt:
        return [[*b"<think>hm</think>ok"], [CONTROL, *b'{"a"'], [*b": 1}", EOG]]
    if b"think" in prompt:
        return [[*b"<think>let"], [*b" me see"], [*b"</think>It "], [*b"is so.", EOG]]
    if b"wait" in prompt:
        return [[*b"a"]] * 200
    return bytes_in_blocks(TEXT.encode())


@pytest.fixture(scope="module")
def native() -> FakeNative:
    return FakeNative(script, n_slots=4, n_ctx_slot=256)


@pytest.fixture(scope="module")
def server(native: FakeNative) -> Iterator[Live]:
    with live(lambda _progress: Engine.over(native), Settings(alias="fake", limits=Limits(body=10_000))) as running:
        yield running


def nested(inner: Any, around: Callable[[Any], Any], depth: int) -> Any:
    """A value in a value in a value, so deep."""
    for _ in range(depth):
        inner = around(inner)
    return inner


def post(server: Live, path: str, body: dict[str, Any]) -> Any:
    """A whole answer."""
    response = server.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events(server: Live, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of an answer that is streamed."""
    response = server.http.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n")]
    return [json.loads(line) for line in lines if line.startswith("{")]


def named_events(stream: str) -> list[dict[str, Any]]:
    """The events of a stream in which each has the name that its body tells."""
    parsed: list[dict[str, Any]] = []
    for frame in stream.strip().split("\n\n"):
        name, data = frame.split("\n")
        parsed.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {parsed[-1]['type']}"
    return parsed
