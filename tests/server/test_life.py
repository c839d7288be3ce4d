"""A server's life: loading, keys, full queues, clients that leave, dying engines, signals. Over a scripted engine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from dflash_local.engine import Engine
from dflash_local.errors import DFlashError, ModelError
from dflash_local.server import engine_life
from dflash_local.server.app import create_app
from dflash_local.server.process import serve
from dflash_local.server.settings import Settings
from dflash_local.server.sockets import bind, listen
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import cancels, live, raw_request

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
PATHS = ("/v1/chat/completions", "/v1/completions", "/completion")


def gated(**options: Any) -> tuple[FakeNative, threading.Semaphore]:
    gate = threading.Semaphore(0)
    return FakeNative(b"x" * 2000, gate=gate, n_ctx_slot=8192, **options), gate


# ---- loading ----


def test_socket_answers_503_while_loading() -> None:
    loaded = threading.Event()

    def load(progress: Callable[[float], bool]) -> Engine:
        assert progress(0.25)
        assert loaded.wait(PATIENCE)
        return Engine.over(FakeNative())

    with live(load, wait=False) as server:
        wait_until(lambda: server.service.life.progress == 0.25)
        health = server.http.get("/health")
        assert health.status_code == 503
        assert health.json()["error"]["message"] == "Loading model"
        assert health.json()["progress"] == 0.25
        for path in PATHS:
            assert server.http.post(path, json=BODY).json()["error"]["code"] == "loading"
        assert server.http.get("/v1/models").status_code == 503
        assert server.http.get("/metrics").status_code == 503
        assert server.http.get("/").status_code == 200
        loaded.set()
        wait_until(lambda: server.http.get("/health").status_code == 200)
        assert server.http.post(PATHS[0], json=BODY).status_code == 200


def test_a_model_that_does_not_load_ends_the_server() -> None:
    def load(_progress: Callable[[float], bool]) -> Engine:
        raise ModelError("tensor blk.0 is torn")

    with live(load, wait=False) as server:
        wait_until(lambda: isinstance(server.service.failure, ModelError))


def test_shutdown_while_loading_stops_the_loading() -> None:
    def load(progress: Callable[[float], bool]) -> Engine:
        while progress(0.5):
            time.sleep(0.005)
        raise ModelError("cancelled")

    with live(load, wait=False) as server:
        wait_until(lambda: server.service.life.progress == 0.5)
    assert server.service.failure is None


# ---- keys ----


def test_keys() -> None:
    with live(lambda _: Engine.over(FakeNative()), Settings(api_keys=("secret", "other"))) as server:
        for wrong in (
            {},
            {b"Authorization": b"Bearer wrong"},
            {b"Authorization": b"Bearer secre"},
            {b"Authorization": b"Bearer \xff"},
        ):
            response = server.http.post(PATHS[0], json=BODY, headers=wrong)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
        for headers in ({"Authorization": "Bearer secret"}, {"X-Api-Key": "other"}):
            assert server.http.post(PATHS[0], json=BODY, headers=headers).status_code == 200
        assert server.http.get("/metrics").status_code == 401
        assert server.http.get("/health").status_code == 200
        assert server.openai.models.list().data  # the client of `live` shows the first key


# ---- queue ----


def test_full_queue_answers_503_with_retry_after() -> None:
    native, gate = gated()
    with live(lambda _: Engine.over(native, max_queue=1)) as server, ThreadPoolExecutor() as pool:
        answers = [pool.submit(server.http.post, PATHS[0], json={**BODY, "max_tokens": 1}) for _ in range(2)]
        wait_until(lambda: server.engine.n_running == 1 and server.engine.n_waiting == 1)
        for stream in (False, True):
            refused = server.http.post(PATHS[0], json={**BODY, "stream": stream})
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "queue_full"
            assert int(refused.headers["retry-after"]) >= 1
        assert server.http.post(PATHS[0], json={**BODY, "n": 2}).status_code == 503
        gate.release(100)
        assert [answer.result(PATIENCE).status_code for answer in answers] == [200, 200]
        assert server.engine.n_waiting == 0


def test_a_request_that_fits_in_part_is_not_started_in_part() -> None:
    native, gate = gated(n_slots=2)
    with live(lambda _: Engine.over(native, max_queue=1)) as server:
        with server.http.stream("POST", PATHS[0], json={**BODY, "stream": True}):
            wait_until(lambda: server.engine.n_running == 1)
            assert server.http.post(PATHS[0], json={**BODY, "n": 3}).status_code == 503
        gate.release(10_000)  # enough for whatever runs until the server sees that the client left
        wait_until(lambda: server.engine.n_running + server.engine.n_waiting == 0)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (PATHS[0], {**BODY, "n": 4}, "n"),
        (PATHS[1], {"prompt": ["x", "y"], "n": 2}, "n"),
        (PATHS[2], {"prompt": ["x"] * 4}, "prompt"),
    ],
)
def test_more_choices_than_the_queue_ever_holds_are_refused_for_good(path: str, body: Any, param: str) -> None:
    with live(lambda _: Engine.over(FakeNative(n_slots=2), max_queue=1)) as server:
        refused = server.http.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        assert "--max-queue" in refused.json()["error"]["message"]
        assert "retry-after" not in refused.headers


# ---- clients that leave ----


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_frees_the_slot_within_one_step(path: str, stream: bool) -> None:
    native, gate = gated()
    with live(lambda _: Engine.over(native)) as server:
        left = cancels(server)
        with raw_request(server, "POST", path, {**BODY, "prompt": "hi", "stream": stream}) as client:
            gate.release(3)
            wait_until(lambda: native.n_steps == 3)
            if stream:
                assert b"200 OK" in client.recv(4096)
        assert left.wait(PATIENCE)
        gate.release()  # the step that was running, if it had begun
        wait_until(lambda: server.engine.n_running == 0)
        assert native.n_steps in (3, 4)
        assert native.cancelled == [0]


def test_disconnect_while_waiting_leaves_the_queue() -> None:
    native, gate = gated()
    with live(lambda _: Engine.over(native)) as server, ThreadPoolExecutor() as pool:
        left = cancels(server)
        running = pool.submit(server.http.post, PATHS[0], json={**BODY, "max_tokens": 5})
        wait_until(lambda: server.engine.n_running == 1)
        with raw_request(server, "POST", PATHS[0], BODY):
            wait_until(lambda: server.engine.n_waiting == 1)
        assert left.wait(PATIENCE)
        gate.release(10)
        assert running.result(PATIENCE).status_code == 200
        wait_until(lambda: server.engine.n_waiting == 0)
        assert len(native.submitted) == 1


# ---- death ----


def test_engine_death_is_told_to_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_life, "DEATH_GRACE", PATIENCE)
    native, gate = gated()
    with live(lambda _: Engine.over(native)) as server, ThreadPoolExecutor() as pool:
        running = pool.submit(server.http.post, PATHS[0], json=BODY)
        wait_until(lambda: server.engine.n_running == 1)
        waiting = pool.submit(server.http.post, PATHS[0], json={**BODY, "stream": True})
        wait_until(lambda: server.engine.n_waiting == 1)
        native.fail_next_step = "the device is gone"
        gate.release()
        assert running.result(PATIENCE).status_code == 500
        assert "the device is gone" in running.result().json()["error"]["message"]
        assert waiting.result(PATIENCE).status_code == 200  # a stream's headers do not wait for its text
        assert "the device is gone" in error_event(waiting.result().text)["message"]
        assert server.http.post(PATHS[0], json=BODY).status_code == 500
        health = server.http.get("/health")
        assert (health.status_code, health.json()["error"]["code"]) == (503, "engine_dead")


def test_a_server_ends_some_time_after_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_life, "DEATH_GRACE", 0.1)
    native = FakeNative()
    native.fail_next_step = "the device is gone"
    with live(lambda _: Engine.over(native)) as server:
        server.engine.submit([1])
        wait_until(lambda: not reachable(server.url))


def test_death_in_mid_stream_is_an_event() -> None:
    native, gate = gated()
    with live(lambda _: Engine.over(native)) as server, ThreadPoolExecutor() as pool:
        answer = pool.submit(server.http.post, PATHS[1], json={"prompt": "hi", "stream": True})
        gate.release(2)
        wait_until(lambda: native.n_steps == 2)
        native.fail_next_step = "the device is gone"
        gate.release()
        text = answer.result(PATIENCE).text
        assert answer.result().status_code == 200
        assert "the device is gone" in error_event(text)["message"]


def error_event(stream: str) -> dict[str, Any]:
    """The error that a stream of OpenAI's ends with."""
    error: dict[str, Any] = json.loads(stream.split("\n\n")[-3].removeprefix("data: "))["error"]
    return error


def test_a_failed_pass_is_an_error_and_the_next_request_works() -> None:
    native = FakeNative()
    with live(lambda _: Engine.over(native)) as server:
        native.fail_next_pass = "out of memory"
        failed = server.http.post(PATHS[0], json=BODY)
        assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
        native.fail_next_pass = "out of memory"
        failed = server.http.post(PATHS[0], json={**BODY, "stream": True})
        assert (failed.status_code, error_event(failed.text)["type"]) == (200, "server_error")
        assert server.http.post(PATHS[0], json=BODY).status_code == 200


def test_a_long_step_does_not_hold_up_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_life, "STATS_PATIENCE", 0.05)
    native, gate = gated()
    with live(lambda _: Engine.over(native)) as server, ThreadPoolExecutor() as pool:
        answer = pool.submit(server.http.post, PATHS[0], json={**BODY, "max_tokens": 9})
        wait_until(lambda: server.engine.n_running == 1)
        assert "llamacpp:requests_processing 1" in server.http.get("/metrics", timeout=PATIENCE).text
        gate.release(100)
        assert answer.result(PATIENCE).status_code == 200
        monkeypatch.setattr(engine_life, "STATS_PATIENCE", PATIENCE)
        assert "dflash:choices_total" in server.http.get("/metrics").text


def reachable(url: str) -> bool:
    try:
        httpx.get(url + "/health")
    except httpx.TransportError:
        return False
    return True


# ---- the process ----


# Steps take a time, or each waits for a line.
PROGRAM = """
    import sys, threading
    from dflash_local.engine import Engine
    from dflash_local.server.app import create_app
    from dflash_local.server.process import serve
    from dflash_local.server.sockets import bind
    from tests.fake_native import FakeNative

    gate = threading.Semaphore(0)
    step = {"step_seconds": float(sys.argv[1])} if sys.argv[1] else {"gate": gate}
    native = FakeNative(b"x" * 2000, n_slots=2, **step)
    threading.Thread(target=lambda: [gate.release() for _ in sys.stdin], daemon=True).start()
    with bind("127.0.0.1", 0) as sock:
        print(sock.getsockname()[1], flush=True)
        serve(create_app(lambda _: Engine.over(native)), [sock], drain_timeout=float(sys.argv[2]))
"""


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], str]]:
    step_seconds, drain = request.param
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(step_seconds), str(drain)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as running:
        try:
            assert running.stdout
            url = f"http://127.0.0.1:{running.stdout.readline().strip()}"
            wait_until(lambda: reachable(url) and httpx.get(url + "/health").status_code == 200)
            yield running, url
        finally:
            running.kill()


@pytest.mark.parametrize("process", [("", 600)], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(process: tuple[subprocess.Popen[str], str], number: signal.Signals) -> None:
    running, url = process

    def go_on(n_steps: int) -> None:
        assert running.stdin
        running.stdin.write("\n" * n_steps)
        running.stdin.flush()

    def both_run() -> bool:
        go_on(1)  # slots tell what they do between two steps
        return sum(slot["is_processing"] for slot in httpx.get(url + "/slots").json()) == 2

    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(httpx.post, url + PATHS[0], json={**BODY, "stream": stream}) for stream in (False, True)]
        wait_until(both_run)
        running.send_signal(number)
        wait_until(lambda: not reachable(url))  # no new connections
        assert not answers[0].done()
        go_on(5000)
        assert answers[0].result(PATIENCE).json()["choices"][0]["message"]["content"] == "x" * 2000
        assert answers[1].result(PATIENCE).text.endswith("data: [DONE]\n\n")
    assert running.wait(PATIENCE) == 0


@pytest.mark.parametrize("process", [(0.5, 1)], indirect=True)
def test_the_drain_has_a_limit(process: tuple[subprocess.Popen[str], str]) -> None:
    running, url = process
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(httpx.post, url + PATHS[0], json=BODY, timeout=PATIENCE)
        wait_until(lambda: any(slot["is_processing"] for slot in httpx.get(url + "/slots").json()))
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0  # the whole answer would take longer
        assert (answer.result(PATIENCE).status_code, answer.result().json()["error"]["message"]) == (
            500,
            "the engine was closed",
        )


@pytest.mark.parametrize("process", [(0.5, 30)], indirect=True)
@pytest.mark.parametrize(("presses", "status"), [(2, 0), (3, 128 + signal.SIGINT)])
def test_impatience_ends_the_drain(process: tuple[subprocess.Popen[str], str], presses: int, status: int) -> None:
    """The second Ctrl-C cuts answers off with a proper error, the third does not even wait for the step; none shows a
    traceback."""
    running, url = process
    assert running.stderr
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(httpx.post, url + PATHS[0], json=BODY, timeout=PATIENCE)
        wait_until(lambda: any(slot["is_processing"] for slot in httpx.get(url + "/slots").json()))
        for press in range(presses):
            running.send_signal(signal.SIGINT)
            if press == 0:  # two of them at once are one
                wait_until(lambda: not reachable(url))
            elif press == 1:
                assert "cut off" in next(line for line in running.stderr if "told to hurry" in line)
        assert running.wait(PATIENCE) == status
        if presses == 2:
            assert answer.result(PATIENCE).json()["error"]["message"] == "the engine was closed"
    assert "Traceback" not in running.stderr.read()


def test_a_taken_port_is_one_clear_error() -> None:
    with bind("127.0.0.1", 0) as sock:
        listen([sock])
        with pytest.raises(DFlashError, match=r"cannot listen on .*add --port"):
            bind("127.0.0.1", sock.getsockname()[1])


def test_it_listens_when_it_is_ready() -> None:
    """Whoever reads of an address in the log can connect."""

    def connect() -> None:
        with socket.create_connection(sock.getsockname()):
            raise InterruptedError("connected")

    app = create_app(lambda _: Engine.over(FakeNative()))
    with bind("127.0.0.1", 0) as sock, pytest.raises(InterruptedError, match="connected"):
        serve(app, [sock], drain_timeout=1, on_ready=connect)


def test_answers_on_a_kept_connection_are_not_held_back() -> None:
    """Nagle's algorithm would add the client's delayed acknowledgement, 40 ms, to every answer after the first."""
    with bind("127.0.0.1", 0) as listener:
        listen([listener])
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as accepted:
            assert client and accepted.proto == socket.IPPROTO_TCP  # what asyncio asks before it sets TCP_NODELAY
