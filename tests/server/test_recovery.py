"""Recovery: an engine that is lost with an RPC server is loaded again, by itself; tests/rpc has the servers."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import Any

import pytest

from dflash_local.errors import DFlashError, EngineLostError, ModelError, RPCError
from dflash_local.server import recovery
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live
from tests.server.test_sleep import Loads

LOST = RPCError("the RPC server a:1 was lost")
PROMPT: Any = {"prompt": "x"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_FIRST_WAIT", 0.05)
    monkeypatch.setattr(recovery, "_LONGEST_WAIT", 0.05)


class Losing(FakeNative):
    """An engine whose RPC server is gone."""

    def rpc_check(self) -> None:
        raise LOST


def lose(server: Live, loads: Loads, failure: DFlashError = LOST) -> None:
    """The engine is lost, and loading fails."""
    loads.failure = failure
    server.engine.check_rpc()
    server.engine.ended.result(PATIENCE)
    wait_until(lambda: server.http.get("/health").status_code == 503)


def test_a_lost_engine_is_loaded_again() -> None:
    loads = Loads(Losing)
    with live(loads) as server:
        lose(server, loads)
        error = server.http.get("/health").json()["error"]
        assert error["code"] == "rpc_server_lost"
        assert error["message"] == f"{LOST.message}; the model is loaded again as soon as it is back"
        refused = server.http.post("/completion", json=PROMPT)
        assert (refused.status_code, refused.json()["error"]) == (503, error)
        assert "Retry-After" in refused.headers
        assert server.http.get("/v1/models").status_code == 200
        assert server.service.life.state == "lost"
        loads.failure = None
        wait_until(lambda: server.http.get("/health").status_code == 200)
        assert server.http.post("/completion", json=PROMPT).json()["content"] == "hello"
        assert [native.destroyed for native in loads.natives] == [True, False]
    assert loads.natives[1].destroyed


def test_requests_are_told_the_newest_reason() -> None:
    loads = Loads(Losing)
    fewer = "the RPC server a:1 lends fewer devices than before: start it with the same ones"
    with live(loads) as server:
        lose(server, loads, RPCError(fewer))
        wait_until(lambda: server.http.get("/health").json()["error"]["message"].startswith(fewer))
        assert server.http.post("/completion", json=PROMPT).json()["error"]["code"] == "rpc_server_lost"


def test_what_never_comes_back_ends_with_the_server() -> None:
    loads = Loads(Losing)
    with live(loads) as server:
        lose(server, loads)
    assert len(loads.natives) == 1


def test_a_model_that_is_gone_ends_it() -> None:
    loads = Loads(Losing)
    with live(loads) as server:
        lose(server, loads, ModelError("the file is gone"))
        wait_until(lambda: server.service.life.state == "dead" and server.service.life.recovery.refusal is None)
        refused = server.http.post("/completion", json=PROMPT)
        assert refused.status_code >= 500 and "as soon as it is back" not in refused.text


def test_what_is_lost_as_soon_as_it_is_loaded_is_loaded_once_more() -> None:
    """Before the recovery goes on behind the load."""
    calls: list[str] = []
    failures: list[Exception] = []

    async def free() -> None:
        calls.append("free")

    async def load() -> None:
        calls.append("load")
        if len(calls) == 2:
            recovered.begin(EngineLostError(LOST.message))

    async def recover() -> None:
        recovered.begin(EngineLostError(LOST.message))
        while recovered.refusal is not None:
            await asyncio.sleep(0.01)

    recovered = recovery.Recovery(free, load, failures.append, nullcontext)
    asyncio.run(asyncio.wait_for(recover(), PATIENCE))
    assert (calls, failures) == (["free", "load"] * 2, [])


@pytest.mark.slow
def test_what_is_lost_does_not_fall_asleep() -> None:
    """Else it would be loaded twice: by the recovery, and by who wakes it."""
    loads = Loads(Losing)
    with live(loads, Settings(sleep_idle_seconds=0.3)) as server:
        with server.service.life.sleep.held():
            server.http.post("/completion", json=PROMPT).raise_for_status()  # awake, if it slept already
            lose(server, loads)
        n_loads = len(loads.natives)
        time.sleep(0.8)
        assert not server.service.life.sleep.is_sleeping
        with server.service.life.sleep.held():
            loads.failure = None
            wait_until(lambda: server.http.get("/health").status_code == 200)
            assert server.http.post("/completion", json=PROMPT).status_code == 200
            assert len(loads.natives) == n_loads + 1
        wait_until(lambda: server.service.life.sleep.is_sleeping)
