"""What one client cannot take from the others: time, connections, memory. Over a scripted engine."""

from __future__ import annotations

import json
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest

from dflash_local.engine import Engine
from dflash_local.server import process
from dflash_local.server.fields.body import parse_json
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.process import KEEP_ALIVE, make_server
from dflash_local.server.recordings.recorder import _streams
from dflash_local.server.replicas.asked import keys
from dflash_local.server.security.connections import connections_possible
from dflash_local.server.security.limits import Limits
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
QUICK = Limits(timeout=2, head_timeout=1, connections=8, body=100_000, bodies=150_000, free_body=1000)


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(lambda _: Engine.over(FakeNative()), Settings(limits=QUICK)) as running:
        yield running


@pytest.fixture(autouse=True)
def others_are_served(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test did: the next good request is answered, and nothing is left."""
    yield
    if "server" in request.fixturenames:
        running = request.getfixturevalue("server")
        # On a connection of its own: one that was kept may end just now.
        assert httpx.post(running.url + CHAT, json=BODY).status_code == 200
        wait_until(lambda: running.engine.n_running + running.engine.n_waiting == 0)


def connect(server: Live) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def said(client: socket.socket) -> bytes:
    """All that the server says until it closes the connection."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def head(length: int, path: str = CHAT) -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), length)


def error_of(answer: bytes) -> tuple[int, str]:
    status = int(answer.split(b" ", 2)[1])
    return status, json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]


# ---- time ----


def test_a_head_that_does_not_come(server: Live) -> None:
    with connect(server) as client:
        for byte in b"POST / HTTP/1.1\r\nHost: x":  # a byte now and then does not help
            if select.select([client], [], [], 0.02)[0]:
                break
            client.sendall(bytes([byte]))
        assert error_of(said(client)) == (408, "head_timeout")


def test_a_connection_that_says_nothing(server: Live) -> None:
    with connect(server) as client:
        assert said(client) == b""


def test_a_body_that_does_not_come(server: Live) -> None:
    with connect(server) as client:
        client.sendall(head(1000) + b'{"messages"')
        assert error_of(said_first(client)) == (408, "body_timeout")


def test_a_body_that_comes_slowly_but_in_time() -> None:
    body = json.dumps(BODY).encode()
    limits = replace(QUICK, timeout=PATIENCE, head_timeout=PATIENCE)
    with live(lambda _: Engine.over(FakeNative()), Settings(limits=limits)) as server, connect(server) as client:
        client.sendall(head(len(body)))
        for start in range(0, len(body), 20):
            client.sendall(body[start : start + 20])
            time.sleep(0.02)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read() -> None:
    """Once all buffers are full for too long, it has left: its slot is free."""
    native = FakeNative(lambda _: [[120], *[[120] * 4] * 50_000], n_ctx_slot=300_000, step_seconds=2e-4)
    with live(lambda _: Engine.over(native), Settings(limits=QUICK)) as server, connect(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({**BODY, "max_tokens": 200_000, "stream": True}).encode()
        client.sendall(head(len(body)) + body)
        wait_until(lambda: server.engine.n_running == 1)
        wait_until(lambda: native.cancelled == [0])
        answer = said(client)  # what its own buffers hold
    assert answer.startswith(b"HTTP/1.1 200") or not answer
    assert not answer.endswith(b"0\r\n\r\n")


def said_first(client: socket.socket) -> bytes:
    """One answer, without waiting for the connection's end."""
    answer = b""
    while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
        part = client.recv(65536)
        assert part, answer
        answer += part
    return answer


# ---- a body whose answer does not wait for it ----

EARLY = "/no/such/path"


def answered_early(server: Live) -> socket.socket:
    """A connection on which a request of four bytes has been answered, and its body is still to come."""
    client = connect(server)
    client.sendall(head(4, EARLY))
    assert said_first(client).startswith(b"HTTP/1.1 404")
    return client


def test_it_begins_no_head(server: Live) -> None:
    """A 408 would be the answer to what the client asks next."""
    with answered_early(server) as client:
        client.sendall(b"late")
        assert not select.select([client], [], [], 2 * QUICK.head_timeout)[0]
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("part", [b"", b"la"])
def test_its_rest_does_not_come(server: Live, part: bytes) -> None:
    with answered_early(server) as client:
        client.sendall(part)
        assert said(client) == b""


def test_a_head_after_it_does_not_come(server: Live) -> None:
    with answered_early(server) as client:
        client.sendall(b"lateGET /health")
        assert error_of(said(client)) == (408, "head_timeout")


def test_after_it_the_connection_rests_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "KEEP_ALIVE", 1)
    limits = replace(QUICK, head_timeout=PATIENCE)
    with live(lambda _: Engine.over(FakeNative()), Settings(limits=limits)) as server, answered_early(server) as client:
        client.sendall(b"late")
        assert said(client) == b""


# ---- connections ----


def test_the_longest_idle_connection_makes_room(server: Live) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(QUICK.connections * 3)]
        assert httpx.post(server.url + CHAT, json=BODY, timeout=PATIENCE).status_code == 200
        assert said(clients[0]) == b""


def test_a_connection_may_rest_for_longer_than_clients_keep_theirs(server: Live) -> None:
    """Go's keep theirs for 90 seconds, nginx 60; what they post on one that closes is lost."""
    answer = server.http.get("/health")
    seconds = int(answer.headers["Keep-Alive"].removeprefix("timeout="))
    assert seconds == KEEP_ALIVE > 90
    config = make_server(server.app, drain_timeout=1).config
    assert config.timeout_keep_alive == seconds


def test_when_all_are_busy_the_next_is_told_to_come_back() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(b"x" * 40, gate=gate)
    limits = replace(QUICK, connections=2, head_timeout=60)
    with live(lambda _: Engine.over(native), Settings(limits=limits)) as server, ExitStack() as stack:
        server.http.close()
        body = json.dumps({**BODY, "stream": True}).encode()
        wait_until(lambda: not server.service.engine.n_running)
        busy = [stack.enter_context(connect(server)) for _ in range(2)]
        for client in busy:
            client.sendall(head(len(body)) + body)
        wait_until(lambda: server.engine.n_running + server.engine.n_waiting == 2)
        with connect(server) as late:
            late.sendall(head(len(body)) + body)
            answer = said(late)
        assert error_of(answer) == (503, "too_many_connections")
        assert b"\r\nretry-after: 5" in answer.lower()
        gate.release(100)
        assert all(client.recv(15) == b"HTTP/1.1 200 OK" for client in busy)


def test_a_thousand_idle_connections_starve_nobody() -> None:
    limits = replace(QUICK, connections=1200, head_timeout=60)
    with live(lambda _: Engine.over(FakeNative()), Settings(limits=limits)) as server, ExitStack() as stack:
        connections_possible(2500)  # here, too
        idle = [stack.enter_context(connect(server)) for _ in range(1000)]
        for client in idle[::2]:
            client.sendall(b"POST /v1/chat")
        for _ in range(5):
            assert server.http.post(CHAT, json=BODY, timeout=PATIENCE).status_code == 200


def test_the_limit_of_files_is_raised_or_obeyed() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (600, limits[1]))
        assert connections_possible(800) == 800
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 800
        assert connections_possible(1) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# ---- bodies ----


def test_a_body_that_says_to_be_too_long_is_not_read(server: Live) -> None:
    with connect(server) as client:
        client.sendall(head(QUICK.body + 1))
        assert error_of(said_first(client)) == (413, "body_too_large")


def test_a_body_that_becomes_too_long(server: Live) -> None:
    parts = iter([b'{"x": "'] + [b"x" * 10_000] * 20)
    response = httpx.post(server.url + CHAT, content=parts, timeout=PATIENCE)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


def test_all_bodies_together_are_bounded() -> None:
    limits = replace(QUICK, timeout=PATIENCE, head_timeout=PATIENCE)
    with live(lambda _: Engine.over(FakeNative()), Settings(limits=limits)) as server:
        with ExitStack() as stack:
            for _ in range(2):
                client = stack.enter_context(connect(server))
                client.sendall(head(90_000) + b"x" * 70_000)
            wait_until(lambda: bodies_held(server) > 130_000)
            third = stack.enter_context(connect(server))
            third.sendall(head(90_000) + b"x" * 70_000)
            assert error_of(said_first(third)) == (503, "too_many_bodies")
            assert httpx.post(server.url + CHAT, json=BODY).status_code == 200  # a small one has room
        wait_until(lambda: bodies_held(server) == 0)


def many(value: bytes, count: int) -> bytes:
    """A body with a list of so many values."""
    return b'{"content": "a", "stream": true, "x": [' + (value + b",") * (count - 1) + value + b"]}"


def test_a_body_of_too_many_values() -> None:
    """Each of them takes far more memory than its text."""
    with live(lambda _: Engine.over(FakeNative())) as server:
        answer = server.http.post("/tokenize", content=many(b"[]", 1 << 20))
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert server.http.post("/tokenize", content=many(b"[]", 1 << 18)).json() == {"tokens": [97]}


def test_the_values_of_a_body_are_counted() -> None:
    for value, count in ((b"{}", 1 << 20), (b"1", (1 << 23) + 2)):
        with pytest.raises(HTTPError, match="too many values"):
            parse_json(many(value, count))
    assert len(parse_json(many(b"[]", (1 << 20) - 2))["x"]) == (1 << 20) - 2
    texts = b'"' + b"[,{\\" + b'"' + b",[" * (1 << 21) + b'"'
    assert parse_json(b'{"x": [' + texts + b", " + texts + b"]}")["x"][0].startswith('[,{"')
    assert not _streams(many(b"{}", 1 << 20)) and _streams(many(b"{}", 8))  # read twice, where they may be recorded
    assert keys({"type": "http", "headers": []}, many(b"{}", 1 << 20).replace(b"content", b"prompt")) == ()


def bodies_held(server: Live) -> int:
    """Bytes of bodies that count."""
    from dflash_local.server.security.body_limits import BodyLimits

    return next(layer._held for layer in layers(server) if isinstance(layer, BodyLimits))


def layers(server: Live) -> Iterator[Any]:
    """The app's middleware, from the outermost."""
    layer: Any = server.app.middleware_stack
    while layer is not None:
        yield layer
        layer = getattr(layer, "_app", getattr(layer, "app", None))


# ---- what is no HTTP ----


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_no_http(server: Live, raw: bytes) -> None:
    with connect(server) as client:
        client.sendall(raw)
        if raw.startswith(b"\x16"):
            client.sendall(b"\r\n\r\n")
        assert error_of(said(client)) == (400, "invalid_http")


def test_chunks_that_are_none(server: Live) -> None:
    with connect(server) as client:
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT.encode())
        client.sendall(b"5\r\nhello\r\nnot a length\r\n")
        assert error_of(said(client))[0] == 400
