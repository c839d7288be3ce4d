"""Streams before and between their text: headers at once, pings, progress, timings. Over a scripted engine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest

from dflash_local.engine import Engine
from dflash_local.errors import ComputeError
from dflash_local.server import streaming
from dflash_local.server.fields.request import Defaults
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.patience import PATIENCE
from tests.server.live import Live, live

CHAT, TEXT, NATIVE = PATHS = ("/v1/chat/completions", "/v1/completions", "/completion")


def body(path: str, prompt: str = "hi", **fields: Any) -> dict[str, Any]:
    asks = {"messages": [{"role": "user", "content": prompt}]} if path == CHAT else {"prompt": prompt}
    return {**asks, "stream": True, **fields}


def events(server: Live, path: str, **fields: Any) -> list[dict[str, Any]]:
    text = server.http.post(path, json=body(path, **fields)).raise_for_status().text
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(lambda _: Engine.over(FakeNative(b"hello", n_slots=2, n_batch=8))) as running:
        yield running


@pytest.mark.parametrize("path", PATHS)
def test_headers_come_before_the_prompt_is_read_and_pings_until_then(path: str) -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(b"hello", gate=gate)
    with live(lambda _: Engine.over(native), Settings(defaults=Defaults(ping_interval=0.05))) as server:
        start = time.monotonic()
        with server.http.stream("POST", path, json=body(path)) as response:
            assert response.status_code == 200
            lines = response.iter_lines()
            assert [next(lines) for _ in range(4)] == [":", "", ":", ""]
            assert native.n_steps == 0
            gate.release(10)
            rest = list(lines)
        n_pings = 2 + rest.count(":")
        assert n_pings <= (time.monotonic() - start) / 0.05  # each comes after so much silence
        assert any('"h"' in line for line in rest)


@pytest.mark.parametrize("path", [*PATHS, "/v1/responses", "/v1/messages", "/api/chat"])
def test_no_line_ends_within_an_event(path: str) -> None:
    """Clients split streams as `str.splitlines` does, which knows more ends of lines than JSON escapes."""
    asked = {"input": "hi", "stream": True} if path == "/v1/responses" else body(path if path in PATHS else CHAT)
    with live(lambda _: Engine.over(FakeNative("a\u2028b\u2029c\x85d".encode()))) as server:
        text = server.http.post(path, json=asked).raise_for_status().text
    assert text.splitlines() == text.split("\n")[:-1]
    assert all(escape in text for escape in (r"\u2028", r"\u2029", r"\u0085"))


def test_a_request_chooses_its_pings() -> None:
    gate = threading.Semaphore(0)
    with (
        live(lambda _: Engine.over(FakeNative(b"hello", gate=gate, n_slots=2))) as server,
        ThreadPoolExecutor() as pool,
    ):
        silent = pool.submit(server.http.post, TEXT, json=body(TEXT, sse_ping_interval=-1))
        with server.http.stream("POST", TEXT, json=body(TEXT, sse_ping_interval=1)) as response:
            lines = response.iter_lines()
            assert next(lines) == ":"
            gate.release(10)
            assert next(line for line in lines if line not in ("", ":")).startswith("data: ")
        assert silent.result(PATIENCE).text.startswith("data: ")


@pytest.mark.parametrize(("error", "traced"), [(ComputeError("a pass failed"), False), (KeyError("x"), True)])
def test_the_log_has_a_traceback_of_what_was_not_foreseen(
    error: Exception, traced: bool, server: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streaming, "chunk_bodies", Mock(side_effect=error))
    assert "error" in events(server, CHAT)[-1]
    (record,) = (one for one in caplog.records if "a stream failed" in one.message)
    assert bool(record.exc_info) is traced and record.levelname == "ERROR"


@pytest.mark.parametrize("path", PATHS)
def test_progress(server: Live, path: str) -> None:
    for first in "abc":
        told = events(server, path, prompt=first * 20, return_progress=True)
        progress = [event["prompt_progress"] for event in told if "prompt_progress" in event]
        assert "prompt_progress" not in told[len(progress)]  # all of them come before the text
        assert progress[0]["processed"] == progress[0]["cache"]
        steps = [one["processed"] for one in progress]
        assert steps == sorted(set(steps))
        assert steps[-1] == progress[-1]["total"] >= 20
        assert {one["total"] for one in progress} == {progress[0]["total"]}
        if path == CHAT:
            assert told[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert all("prompt_progress" not in event for event in events(server, path, prompt="d" * 20))


@pytest.mark.parametrize("path", PATHS)
def test_progress_of_several_choices(server: Live, path: str) -> None:
    told = events(server, path, prompt="e" * 20, return_progress=True, n=3)
    choices = [event if path == NATIVE else event["choices"][0] for event in told if "prompt_progress" in event]
    assert {choice["index"] for choice in choices} == {0, 1, 2}


@pytest.mark.parametrize("path", PATHS)
def test_timings_of_each_event(server: Live, path: str) -> None:
    told = events(server, path, timings_per_token=True)
    assert [event["timings"]["predicted_n"] for event in told if "timings" in event] == [1, 5, 5]
    assert ["timings" in event for event in events(server, path)][:-1] == [False] * (len(told) - 1)


@pytest.mark.parametrize("path", PATHS)
def test_timings_while_the_prompt_is_read(server: Live, path: str) -> None:
    first = "xyz"[PATHS.index(path)]  # nothing of it is cached
    told = events(server, path, prompt=first * 20, return_progress=True, timings_per_token=True)
    progress = [event for event in told if "prompt_progress" in event]
    timings = [event["timings"] for event in progress]
    assert (timings[0]["prompt_n"], timings[0]["prompt_ms"], timings[0]["predicted_n"]) == (0, 0, 0)
    for event in progress:
        seen = event["prompt_progress"]
        assert event["timings"]["prompt_n"] == seen["processed"] - seen["cache"]
    read = [one["prompt_ms"] for one in timings]
    assert len(read) > 2
    assert read == sorted(read)
    assert read[-1] > 0


@pytest.mark.parametrize("field", ["return_progress", "timings_per_token", "sse_ping_interval"])
def test_bad_values(server: Live, field: str) -> None:
    answer = server.http.post(CHAT, json=body(CHAT, **{field: "x"}))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert server.http.post(CHAT, json=body(CHAT, sse_ping_interval=-2)).status_code == 400
