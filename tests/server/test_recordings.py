"""Streams that outlive their client's connection. Over a scripted engine."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.recordings import recording as recording_module
from dflash_local.server.recordings.recording import Recording
from dflash_local.server.recordings.recordings import Recordings
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, cancels, live, raw_request

CHAT = "/v1/chat/completions"
TEXT = b"a long story; " * 20
BODY = {"messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.fixture
def gate() -> threading.Semaphore:
    return threading.Semaphore(0)


@pytest.fixture
def server(gate: threading.Semaphore) -> Iterator[Live]:
    with live(lambda _: Engine.over(FakeNative(TEXT, gate=gate, n_slots=2))) as running:
        yield running
        gate.release(1000)


def kept(server: Live, name: str, start: int | str = 0) -> httpx.Response:
    return server.http.get("/v1/stream", params={"conv_id": name, "from": start})


def said(text: str) -> str:
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


def looked_up(server: Live, *names: str) -> list[dict[str, Any]]:
    answer = server.http.post("/v1/streams/lookup", json={"conversation_ids": names})
    assert answer.status_code == 200
    return list(answer.json())


def test_a_stream_is_read_again_from_any_byte(server: Live, gate: threading.Semaphore) -> None:
    gate.release(1000)
    first = server.http.post(CHAT, json=BODY, headers={"X-Conversation-Id": "a::m/x"}).text
    assert said(first) == TEXT.decode()
    assert kept(server, "a::m/x").text == first
    assert kept(server, "a::m/x", 17).text == first[17:]
    assert kept(server, "a::m/x", len(first)).text == ""
    (told,) = looked_up(server, "a", "b")
    assert told["conversation_id"] == "a::m/x"
    assert told["is_done"] and told["total_bytes"] == len(first)
    assert told["completed_at"] >= told["started_at"] > 1e9
    assert looked_up(server, "a::m") == looked_up(server) == []
    assert server.http.delete("/v1/stream", params={"conv_id": "a::m/x"}).status_code == 204
    assert kept(server, "a::m/x").status_code == 404
    assert server.http.delete("/v1/stream", params={"conv_id": "a::m/x"}).status_code == 204


def test_it_goes_on_when_its_client_is_gone(server: Live, gate: threading.Semaphore) -> None:
    sock = _ask(server, "gone")
    gate.release(2)
    assert b"HTTP/1.1 200" in sock.recv(4096)
    sock.close()
    gate.release(1000)
    assert said(kept(server, "gone").text) == TEXT.decode()  # waits for the end


def test_without_a_name_it_ends_with_its_client(server: Live, gate: threading.Semaphore) -> None:
    left = cancels(server)
    sock = raw_request(server, "POST", CHAT, BODY)
    wait_until(lambda: _busy(server) == 1)
    sock.close()
    assert left.wait(PATIENCE)
    _ends_with_the_step(server, gate)


def test_it_is_cancelled_by_its_name(server: Live, gate: threading.Semaphore) -> None:
    left = cancels(server)
    sock = _ask(server, "stop")
    wait_until(lambda: bool(looked_up(server, "stop")))
    assert server.http.delete("/v1/stream", params={"conv_id": "stop"}).status_code == 204
    assert left.wait(PATIENCE)
    _ends_with_the_step(server, gate)
    assert kept(server, "stop").status_code == 404
    assert _last_event(sock)["error"]["code"] == "cancelled"


def test_the_head_of_one_that_runs_ends_at_once(server: Live, gate: threading.Semaphore) -> None:
    """Otherwise the connection's next request would wait for the end of the stream."""
    sock = _ask(server, "runs")
    gate.release(2)
    wait_until(lambda: bool(looked_up(server, "runs")) and looked_up(server, "runs")[0]["total_bytes"] > 0)
    with raw_request(server, "HEAD", "/v1/stream?conv_id=runs") as head:
        assert b"text/event-stream" in head.recv(4096)
        head.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.recv(4096).startswith(b"HTTP/1.1 200")
    sock.close()


def test_its_readers_are_told_that_it_was_cancelled(server: Live, gate: threading.Semaphore) -> None:
    sock = _ask(server, "read")
    gate.release(2)
    wait_until(lambda: bool(looked_up(server, "read")) and looked_up(server, "read")[0]["total_bytes"] > 0)
    with server.http.stream("GET", "/v1/stream", params={"conv_id": "read"}) as reader:
        parts = reader.iter_text()
        first = next(parts)
        server.http.delete("/v1/stream", params={"conv_id": "read"})
        gate.release(1000)
        *_, last = (first + "".join(parts)).strip().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "cancelled"
    sock.close()


def test_ollamas_streams_end_with_their_client(server: Live, gate: threading.Semaphore) -> None:
    """They are no events, and nothing could read them again."""
    left = cancels(server)
    sock = raw_request(server, "POST", "/api/chat", {"model": "fake", **BODY}, {"X-Conversation-Id": "ollama"})
    wait_until(lambda: _busy(server) == 1)
    assert looked_up(server, "ollama") == []
    sock.close()
    assert left.wait(PATIENCE)
    _ends_with_the_step(server, gate)


def test_a_new_one_of_the_same_name_takes_its_place(server: Live, gate: threading.Semaphore) -> None:
    left = cancels(server)
    sock = _ask(server, "twice")
    wait_until(lambda: _busy(server) == 1)
    second = _ask(server, "twice")
    assert left.wait(PATIENCE)  # the first one ends, and the second one is what is found
    gate.release(1000)
    wait_until(lambda: [told["is_done"] for told in looked_up(server, "twice")] == [True])
    assert said(kept(server, "twice").text) == TEXT.decode()
    sock.close()
    second.close()


def test_one_that_is_refused_cancels_nothing(server: Live, gate: threading.Semaphore) -> None:
    sock = _ask(server, "busy")
    gate.release(2)
    assert b"HTTP/1.1 200" in sock.recv(4096)
    name = {"X-Conversation-Id": "busy"}
    assert server.http.post(CHAT, json={**BODY, "max_tokens": "x"}, headers=name).status_code == 400
    gate.release(1000)
    assert said(kept(server, "busy").text) == TEXT.decode()
    sock.close()


def test_each_key_has_names_of_its_own(gate: threading.Semaphore) -> None:
    gate.release(1000)
    one, two = ({"X-Api-Key": key, "X-Conversation-Id": "same"} for key in ("one", "two"))
    native = FakeNative(TEXT, gate=gate, n_slots=2)
    with live(lambda _: Engine.over(native), Settings(api_keys=("one", "two"))) as server:

        def again(headers: dict[str, str], method: str = "GET") -> httpx.Response:
            return server.http.request(method, "/v1/stream", params={"conv_id": "same"}, headers=headers)

        first = server.http.post(CHAT, json=BODY, headers=one).text
        names = {"conversation_ids": ["same"]}
        assert said(first) == TEXT.decode() and again(two).status_code == 404
        assert server.http.post("/v1/streams/lookup", json=names, headers=two).json() == []
        second = server.http.post(CHAT, json=BODY, headers=two).text
        assert (again(one).text, again(two).text) == (first, second) and first != second
        assert again(two, "DELETE").status_code == 204
        assert again(one).text == first and again(two).status_code == 404


def test_only_streams_are_kept(server: Live, gate: threading.Semaphore) -> None:
    gate.release(1000)
    name = {"X-Conversation-Id": "whole"}
    assert server.http.post(CHAT, json={**BODY, "stream": False}, headers=name).status_code == 200
    assert server.http.post(CHAT, json={**BODY, "max_tokens": "x"}, headers=name).status_code == 400
    assert server.http.post(CHAT, content=b"[" * 100_000, headers=name).status_code == 400
    assert looked_up(server, "whole") == []


@pytest.mark.parametrize(
    ("query", "param"),
    [({}, "conv_id"), ({"conv_id": "a", "from": "-1"}, "from"), ({"conv_id": "a", "from": "x"}, "from")],
)
def test_refused(server: Live, query: dict[str, str], param: str) -> None:
    answer = server.http.get("/v1/stream", params=query)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_long_names_are_refused(server: Live) -> None:
    answer = server.http.post(CHAT, json=BODY, headers={"X-Conversation-Id": "a" * 600})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "X-Conversation-Id"


def test_the_newest_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "MAX_BYTES", 2500)
    monkeypatch.setattr(recording_module, "BLOCK_BYTES", 1000)
    sent = random.Random(0).randbytes(4100)  # which nothing compresses

    async def run() -> None:
        recording = Recording("a")
        for start in range(0, len(sent), 100):
            recording.append(sent[start : start + 100])
        assert (recording.total, recording.dropped) == (4100, 2000)
        recording.finish()
        for start in (2000, 2001, 2999, 3000, 3999, 4000, 4050, 4100):
            assert b"".join([piece async for piece in recording.read(start)]) == sent[start:]
        with pytest.raises(LookupError):
            _ = [piece async for piece in recording.read(1999)]

    asyncio.run(run())


def test_a_long_answer_is_kept_whole() -> None:
    """Twice as long as what may be stored: events that have timings resemble each other."""
    numbers = random.Random(0)
    events = [
        b"data: " + json.dumps({f"field {name}": numbers.random() for name in range(30)}).encode() + b"\n\n"
        for _ in range(100)
    ]

    async def run() -> None:
        recording = Recording("a")
        while recording.total < 2 * recording_module.MAX_BYTES:
            for event in events:
                recording.append(event)
        assert recording.dropped == 0
        recording.finish()
        length = sum([len(piece) async for piece in recording.read(1)])
        assert length == recording.total - 1

    asyncio.run(run())


def test_room_for_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[tuple[float, Recording]] = []

    def call_later(seconds: float, _forget: object, recording: Recording) -> asyncio.Handle:
        later.append((seconds, recording))
        return asyncio.Handle(print, (), asyncio.get_running_loop())

    async def run() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
        recordings = Recordings(ttl=3600, most=2)
        first, second = recordings.begin("a"), recordings.begin("b")
        with pytest.raises(HTTPError) as error:
            recordings.begin("c")
        assert error.value.status == 503 and error.value.retry_after
        first.begin()
        recordings.finish(first)
        assert recordings.find("a") is first
        third = recordings.begin("c")
        assert recordings.find("a") is None
        recordings.finish(second)  # never began: there is nothing to come back to
        assert recordings.find("b") is None
        third.begin()
        recordings.finish(third)
        assert recordings.find("c") is third
        assert later == [(3600, first), (3600, third)]
        recordings.forget(third)
        assert recordings.find("c") is None
        with pytest.raises(RequestError):
            recordings.begin("x" * 1000)

    asyncio.run(run())


def test_an_older_one_goes_on_until_the_newer_one_begins() -> None:
    recordings = Recordings(most=1)
    old, refused = recordings.begin("a"), recordings.begin("a")
    recordings.open(old)
    assert recordings.find("a") is refused and recordings.known(["a"]) == [refused]
    recordings.finish(refused)
    assert recordings.find("a") is old and not old.cancelled.is_set()
    waiting, newest, later = (recordings.begin("a") for _ in range(3))
    recordings.open(newest)
    assert [one.cancelled.is_set() for one in (old, waiting, newest, later)] == [True, True, False, False]
    recordings.remove("a")
    assert newest.cancelled.is_set() and later.cancelled.is_set() and recordings.find("a") is None


def test_what_is_not_kept_takes_no_memory() -> None:
    """A timer must not hold it: a server with many such streams would have minutes of them in memory."""

    async def run() -> None:
        recordings = Recordings(ttl=3600, most=2)
        evicted, cancelled, late = (_finished(recordings, name) for name in ("evicted", "cancelled", "late"))
        assert evicted() is None and cancelled() is not None and late() is not None
        recordings.remove("cancelled")
        assert cancelled() is None
        writing = recordings.begin("writing")
        writing.begin()
        recordings.remove("writing")
        recordings.finish(writing)  # its writer ends after it was cancelled
        gone = weakref.ref(writing)
        del writing
        assert gone() is None
        assert late() is recordings.find("late")

    asyncio.run(run())


def _finished(recordings: Recordings, name: str) -> weakref.ref[Recording]:
    """A stream that has been sent."""
    recording = recordings.begin(name)
    recording.begin()
    recordings.finish(recording)
    return weakref.ref(recording)


def _ask(server: Live, name: str) -> socket.socket:
    """A stream with a name, on a connection of its own."""
    return raw_request(server, "POST", CHAT, BODY, {"X-Conversation-Id": name})


def _last_event(sock: socket.socket) -> Any:
    """Of a stream that ends, before `[DONE]`."""
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        data += sock.recv(1 << 16)
    sock.close()
    return json.loads(b"{" + data.rpartition(b"data: {")[2].partition(b"\n")[0])


def _busy(server: Live) -> int:
    return sum(slot["is_processing"] for slot in server.http.get("/slots").json())


def _ends_with_the_step(server: Live, gate: threading.Semaphore) -> None:
    """After the one that runs nobody is answered."""
    gate.release(1)
    wait_until(lambda: _busy(server) == 0)
