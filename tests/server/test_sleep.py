"""Sleep: the engine is freed when nobody asks, facts are told on, and the next request finds it loaded again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest

from dflash_local.cli.command_parser import UsageError
from dflash_local.cli.serving.serve_app import make_settings
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError, ModelError
from dflash_local.server import metrics, sleep
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live, serving
from tests.server.test_cli import parse

SOON = Settings(sleep_idle_seconds=0.4)
PROMPT: Any = {"prompt": "x"}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleep, "_LOOK", 0.1)


class Loads:
    """A loader that keeps what it made."""

    def __init__(self, make: Callable[[], FakeNative] = FakeNative) -> None:
        self.natives: list[FakeNative] = []
        self.gate = threading.Event()
        self.gate.set()
        self.failure: DFlashError | None = None
        self._make = make

    def __call__(self, _progress: Any) -> Engine:
        assert self.gate.wait(PATIENCE)
        if self.failure is not None:
            raise self.failure
        self.natives.append(self._make())
        return Engine.over(self.natives[-1])


def is_sleeping(server: Live) -> bool:
    return bool(server.http.get("/props").raise_for_status().json()["is_sleeping"])


def fall_asleep(server: Live) -> None:
    wait_until(lambda: is_sleeping(server) and server.service.engine.ended.done())


def test_facts_are_told_and_the_next_request_wakes() -> None:
    loads = Loads()
    with live(loads, SOON) as server:
        server.http.post("/completion", json=PROMPT).raise_for_status()
        awake = {path: server.http.get(path).json() for path in ("/health", "/v1/models", "/slots")}
        server.http.get("/metrics")
        counted = server.http.get("/metrics").text
        fall_asleep(server)
        wait_until(lambda: loads.natives[-1].destroyed)
        n_loads = len(loads.natives)  # on a busy machine it may have slept before the first request
        assert {path: server.http.get(path).json() for path in awake} == awake
        assert server.http.get("/metrics").text == counted
        for method, path in (("POST", "/nothing"), ("PUT", "/completion"), ("OPTIONS", "/completion")):
            server.http.request(method, path)
        assert is_sleeping(server)
        assert len(loads.natives) == n_loads
        assert server.http.post("/completion", json=PROMPT).json()["content"] == "hello"
        assert len(loads.natives) == n_loads + 1
        fall_asleep(server)
        assert server.http.post("/tokenize", json={"content": "x"}).json() == {"tokens": [120]}
    assert len(loads.natives) == n_loads + 2
    assert all(native.destroyed for native in loads.natives)


def test_counting_starts_over_when_it_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    with live(Loads(), SOON) as server:
        counted = "llamacpp:prompt_tokens_total 1"
        for later in (0, 100):
            monkeypatch.setattr(metrics, "time", SimpleNamespace(time=lambda: now + later))  # noqa: B023
            fall_asleep(server)
            server.http.post("/completion", json=PROMPT).raise_for_status()
            answer = server.http.get("/metrics")
            assert int(answer.headers["Process-Start-Time-Unix"]) == int(now + later)
            assert counted in answer.text.splitlines()


def test_requests_wait_while_it_loads_and_it_loads_once() -> None:
    loads = Loads()
    with live(loads, SOON) as server, ThreadPoolExecutor(8) as pool:
        fall_asleep(server)
        loads.gate.clear()
        n_loads = len(loads.natives)
        answers = [pool.submit(server.http.post, "/completion", json=PROMPT) for _ in range(8)]
        wait_until(lambda: server.service.life.sleep._users == 8)  # all are there
        assert not any(answer.done() for answer in answers)
        assert server.http.get("/health").status_code == 200
        loads.gate.set()
        assert {answer.result().json()["content"] for answer in answers} == {"hello"}
        assert len(loads.natives) == n_loads + 1


def test_it_stays_awake_while_a_stream_runs() -> None:
    loads = Loads(lambda: FakeNative(b"hello" * 8, step_seconds=0.15))
    with live(loads, SOON) as server:
        text = server.http.post("/completion", json={**PROMPT, "stream": True}).text
        assert text.count('"content"') > 8
        assert '"stop_type":"eos"' in text
        assert server.service.failure is None
        fall_asleep(server)


def test_a_model_that_is_gone_is_tried_again() -> None:
    loads = Loads()
    with live(loads, SOON) as server:
        fall_asleep(server)
        loads.failure = ModelError("the file is gone")
        answer = server.http.post("/completion", json=PROMPT)
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable_error")
        assert is_sleeping(server)
        loads.failure = None
        assert server.http.post("/completion", json=PROMPT).status_code == 200


def test_a_model_that_cannot_be_unloaded_sleeps_again_later(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    async def free() -> None:
        calls.append("free")
        raise OSError("no luck")

    async def load() -> None:
        calls.append("load")

    async def calls_are(*expected: str) -> None:
        while calls != [*expected]:
            await asyncio.sleep(0.01)

    async def watch() -> None:
        watched = sleep.Sleep(0.0, free, load)
        watched.start()
        await asyncio.wait_for(calls_are("free"), PATIENCE)
        async with watched.awake():
            assert not watched.is_sleeping
        await asyncio.wait_for(calls_are("free", "load", "free"), PATIENCE)
        await watched.stop()

    asyncio.run(watch())
    assert caplog.text.count("the model could not be unloaded") == 2 and "no luck" in caplog.text


def test_it_never_sleeps_unless_it_is_told_to() -> None:
    loads = Loads()
    with live(loads) as server:
        time.sleep(0.5)
        assert not is_sleeping(server)
        assert not loads.natives[0].destroyed
    assert make_settings(parse("-m", "T.gguf")).sleep_idle_seconds == -1
    assert make_settings(parse("-m", "T.gguf", "--sleep-idle-seconds", "5")).sleep_idle_seconds == 5
    for wrong in ("0", "-2", "x"):
        with pytest.raises(UsageError):
            parse("-m", "T.gguf", "--sleep-idle-seconds", wrong)


def test_memory_is_given_back(pocket: dict[str, Path]) -> None:
    """The pocket pair with a cache of some 100 MB: asleep, the process holds little more than its Python."""
    flags = ["-m", pocket["target"], "-md", pocket["dflash"], "-c", 32768, "-np", 8, "-t", 1, "--sleep-idle-seconds", 1]
    with serving(flags) as (process, url):
        memory = psutil.Process(process.pid)
        ask: Any = {"prompt": "Hello", "n_predict": 8, "temperature": 0}

        def is_asleep() -> bool:
            return bool(httpx.get(f"{url}/props").json()["is_sleeping"])

        first, awake = "", 0
        while not awake:
            first = httpx.post(f"{url}/completion", json=ask).json()["content"]
            size = memory.memory_info().rss
            awake = 0 if is_asleep() else size  # a busy machine may look too late
        wait_until(is_asleep)
        wait_until(lambda: awake - memory.memory_info().rss > 50 * 2**20)
        assert httpx.post(f"{url}/completion", json=ask, timeout=60).json()["content"] == first
