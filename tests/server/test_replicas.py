"""Replicas without Ray: whose conversation a request goes on with, and what the gateway makes of a replica's answer."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import Message

from dflash_local.cli.serving import serve_replicas
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError, EngineDeadError
from dflash_local.server import ray_app
from dflash_local.server.app import create_app
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.middleware.root_path import RootPath
from dflash_local.server.replicas.asked import REPLICA, Asked
from dflash_local.server.replicas.gateway import Gateway
from dflash_local.server.replicas.places import Places
from dflash_local.server.replicas.replica import Replica
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.patience import PATIENCE
from tests.server.conftest import TEXT, script
from tests.server.test_cli import parse

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 50}


def keys(body: Any, headers: dict[str, str] | None = None, query: bytes = b"") -> tuple[str, ...]:
    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "path": "/", "headers": raw, "query_string": query}
    return Asked.of(scope, body if isinstance(body, bytes) else json.dumps(body).encode()).keys


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def shown(picture: str, text: str) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture * 5000}"}}
    return {"role": "user", "content": [image, {"type": "text", "text": text}]}


def marked(picture: str, text: str) -> dict[str, Any]:
    return {"prompt": {"prompt_string": f"<__media__>{text}", "multimodal_data": [picture * 5000]}}


SYSTEM = {"role": "system", "content": "be brief " * 500}


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"messages": [SYSTEM, user("a")]}, {"messages": [SYSTEM, user("a"), {"role": "assistant"}, user("b")]}),
        ({"system": "s", "messages": [user("a")]}, {"system": "s", "messages": [user("a"), user("b")], "stream": True}),
        ({"input": [user("a")]}, {"input": [user("a"), user("b")]}),
        ({"prompt": "abc " * 100}, {"prompt": "abc " * 100 + "more" * 100}),
        ({"prompt": [*range(100)]}, {"prompt": [*range(150)]}),
        ({"prompt": "short"}, {"prompt": "short"}),
        ({"input_prefix": "x" * 100}, {"input_prefix": "x" * 120}),
        ({"messages": [shown("a", "x")]}, {"messages": [shown("a", "x"), {"role": "assistant"}, user("y")]}),
        (marked("a", "x"), marked("a", "x and y")),
    ],
)
def test_a_later_turn_shares_a_key(first: Any, later: Any) -> None:
    assert set(keys(first)) & set(keys(later))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"messages": [SYSTEM, user("a")]}, {"messages": [SYSTEM, user("b")]}),
        ({"messages": [user("a")]}, {"messages": [user("a")], "tools": [{}]}),
        ({"messages": [user("a")], "model": "m"}, {"messages": [user("a")], "model": "n"}),
        ({"prompt": "a" * 100 + "b" * 1000}, {"prompt": "a" * 100 + "c" * 1000}),
        ({"prompt": "short"}, {"prompt": "shorter"}),
        ({"messages": [shown("a", "x")]}, {"messages": [shown("b", "x")]}),
        (marked("a", "x"), marked("b", "x")),
    ],
)
def test_others_share_none(one: Any, other: Any) -> None:
    assert keys(one) and keys(other)
    assert not set(keys(one)) & set(keys(other))


def test_the_conversations_name_comes_first() -> None:
    named = keys(CHAT, {"X-Conversation-Id": "me"})
    assert len(named) == 1
    assert named == keys({"prompt": "else"}, {"x-conversation-id": "me"})
    assert named == keys(b"", query=b"conv_id=me&from=0") == keys({"conversation_ids": ["me"]})


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"[" * 5000, {}, {"messages": 3}, {"messages": None}])
def test_no_conversation(body: Any) -> None:
    assert keys(body) == ()


def test_places() -> None:
    places = Places(n_kept=3)
    places.keep(("long", "short"), "a")
    assert places.find(("longer", "long"), {"a", "b"}) == "a"
    assert places.find(("long",), {"b"}) is None  # gone
    places.keep(("long",), "b")
    assert (places.find(("long",), {"a", "b"}), places.find(("short",), {"a", "b"})) == ("b", "a")
    places.keep(("x", "y"), "a")
    assert places.find(("long",), {"a", "b"}) is None  # forgotten: the least recently used
    assert places.find(("short",), {"a", "b"}) == "a"


class Stream:
    """What Ray makes of a replica's answer."""

    def __init__(self, messages: AsyncIterator[list[Message]]) -> None:
        self._messages = messages
        self.cancelled = False

    def __aiter__(self) -> AsyncIterator[list[Message]]:
        return self._messages

    async def __anext__(self) -> list[Message]:
        return await anext(self._messages)

    def cancel(self) -> None:
        self.cancelled = True


def client(answer: Callable[[Asked], Any], patience: float = 5, *, below: bool = False) -> httpx.AsyncClient:
    gateway = Middleware(Gateway, answer=answer, patience=patience)
    app = Starlette(middleware=[Middleware(RootPath, root="/llm" if below else ""), gateway])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x", timeout=PATIENCE)


async def replica(name: str = "r1") -> Replica:
    def make() -> Any:
        return create_app(lambda _progress: Engine.over(FakeNative(script, n_slots=2)), Settings(alias="fake"))

    made = Replica.__new__(Replica)
    await made.__init__(make, name)  # type: ignore[misc]  # as Ray does
    return made


def test_an_answer_through_a_replica() -> None:
    async def run() -> None:
        one = await replica()
        one.check_health()
        async with client(lambda asked: Stream(one.answer(asked))) as http:
            whole = await http.post("/v1/chat/completions", json=CHAT)
            assert whole.json()["choices"][0]["message"]["content"] == TEXT
            assert whole.headers[REPLICA] == "r1"
            streamed = await http.post("/v1/chat/completions", json={**CHAT, "stream": True}, headers={REPLICA: "r1"})
            assert streamed.text.endswith("data: [DONE]\n\n")
            assert (await http.get("/v1/models")).json()["data"][0]["id"] == "fake"
            assert (await http.head("/health")).status_code == 200
            assert (await http.post("/v1/completions", content=b"{")).status_code == 400
            elsewhere = await http.get("/slots", headers={REPLICA: "r2"})
            assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (404, "replica_gone")
        await one.close()

    asyncio.run(run())


def test_an_app_that_fails_in_its_answer_ends_it() -> None:
    """Whatever it had sent at once; the error is told, and nobody waits."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("broken")

    async def run() -> None:
        one = await replica()
        one._app = broken  # type: ignore[assignment]
        sent: list[Message] = []

        async def listen() -> None:
            async for messages in one.answer(Asked({"type": "http"}, b"", (), "")):
                sent.extend(messages)

        with pytest.raises(RuntimeError, match="broken"):
            await asyncio.wait_for(listen(), PATIENCE)
        assert [message["type"] for message in sent] == ["http.response.start"]
        await one.close()

    asyncio.run(run())


def test_a_client_that_leaves_ends_its_request() -> None:
    async def run() -> None:
        one = await replica()
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
        body = {"messages": [{"role": "user", "content": "wait"}], "stream": True}
        messages = one.answer(Asked(scope, json.dumps(body).encode(), (), ""))
        assert await anext(messages) == []
        assert (await anext(messages))[0]["status"] == 200
        assert one._running
        await messages.aclose()  # type: ignore[attr-defined]
        for _ in range(200):
            await asyncio.sleep(0.01)
            if not one._running:
                break
        assert not one._running
        await one.close()

    asyncio.run(run())


def test_only_a_dead_engine_ends_a_replica() -> None:
    """One that lost an RPC server recovers, and a new replica could not load its model either."""

    async def run() -> None:
        one = await replica()
        one._service.life.recovery.refusal = HTTPError(503, "lost")
        assert one._service.health()[0] == 503
        one.check_health()
        one._service.life.fail(EngineDeadError("the engine is dead"))
        with pytest.raises(EngineDeadError):
            one.check_health()
        await one.close()

    asyncio.run(run())


class Lost(Exception):
    """As Ray says it."""


START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


def scripted(*steps: Any) -> Stream:
    async def messages() -> AsyncIterator[list[Message]]:
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

    return Stream(messages())


def answers(*streams: Stream, path: str = "/v1/chat/completions", patience: float = 5) -> httpx.Response:
    left = list(streams)

    async def run() -> httpx.Response:
        async with client(lambda _asked: left.pop(0), patience, below=path.startswith("/llm")) as http:
            return await http.post(path, json=CHAT)

    return asyncio.run(run())


def test_a_replica_that_dies_before_its_answer_is_replaced() -> None:
    end = {"type": "http.response.body", "body": b"fine"}
    assert answers(scripted(Lost()), scripted([], Lost()), scripted([], [START, end])).text == "fine"
    refused = answers(*(scripted(Lost()) for _ in range(3)))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "replica_lost")


def test_a_stream_whose_replica_dies_says_so() -> None:
    part = {"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True}
    said = answers(scripted([], [START, part], Lost())).text
    assert json.loads(said.removeprefix("data: 1\n\ndata: "))["error"]["code"] == "replica_lost"
    for path in ("/v1/messages", "/llm/v1/messages"):
        said = answers(scripted([], [START, part], Lost()), path=path).text
        event, data = said.removeprefix("data: 1\n\n").split("\n")[:2]
        assert (event, json.loads(data.removeprefix("data: "))["error"]["type"]) == ("event: error", "overloaded_error")


def test_no_replica_in_time() -> None:
    stream = scripted(5.0)
    refused = answers(stream, patience=0.05)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_replica")
    assert stream.cancelled


# ---- the command ----


class Cluster:
    """A cluster of others, as `ray.serve`; `run` does what its `script` says, and signals arrive by `handlers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: Callable[[Cluster], None]) -> None:
        self.done: list[str] = []
        self.applications: dict[str, object] = {}
        self.handlers: dict[int, Callable[..., None]] = {}
        self._script = script
        monkeypatch.setattr(ray_app, "ray_serve", lambda: self)
        monkeypatch.setattr(ray_app, "application", lambda _make_app, _options: "app")
        monkeypatch.setattr(serve_replicas, "_connect", lambda _args: None)
        monkeypatch.setattr(signal, "signal", self.handlers.__setitem__)
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(shutdown=lambda: self.done.append("left")))

    def start(self, **_options: Any) -> None:
        pass

    def run(self, _app: str, **_options: Any) -> None:
        self.done.append("run")
        self._script(self)

    def status(self) -> Cluster:
        return self

    def delete(self, name: str) -> None:
        self.done.append(f"delete {name}")

    def interrupt(self) -> None:
        self.handlers[signal.SIGINT](signal.SIGINT, None)


def fails(_cluster: Cluster) -> None:
    raise RuntimeError("no model file")


@pytest.mark.parametrize(("script", "error"), [(fails, DFlashError), (Cluster.interrupt, SystemExit)])
def test_replicas_that_do_not_start_leave_nothing_on_the_cluster(
    monkeypatch: pytest.MonkeyPatch, script: Callable[[Cluster], None], error: type[BaseException]
) -> None:
    cluster = Cluster(monkeypatch, script)
    with pytest.raises(error):
        serve_replicas.serve_replicas(parse("-m", "T.gguf", "--replicas", "2", "--ray-address", "there:1"))
    assert cluster.done == ["run", "delete dflash-local", "left"]


def test_what_an_upgrade_was_to_replace_stays_where_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, fails)
    cluster.applications["dflash-local"] = "RUNNING"
    with pytest.raises(DFlashError):
        serve_replicas.serve_replicas(parse("-m", "T.gguf", "--replicas", "2", "--ray-address", "there:1"))
    assert cluster.done == ["run", "left"]


def test_a_signal_ends_replicas_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, lambda _cluster: None)
    monkeypatch.setattr(serve_replicas.log, "info", lambda *_words: cluster.interrupt())  # they listen, or drain
    monkeypatch.setattr(cluster, "delete", lambda _name: cluster.done.append("delete"))
    with pytest.raises(SystemExit):  # by the second one
        serve_replicas.serve_replicas(parse("-m", "T.gguf", "--replicas", "2", "--ray-address", "there:1"))
    assert cluster.done == ["run", "delete", "left"]
