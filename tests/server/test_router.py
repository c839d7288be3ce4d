"""The router: models in processes of their own, found, loaded, evicted and asked. Most of these processes are scripts
that start at once (scripted_instance.py); what `serve` itself does in their place comes last."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import ollama
import psutil
import pytest
from starlette.types import Receive

from dflash_local.errors import RequestError
from dflash_local.server.connected import while_connected
from dflash_local.server.fields.request import Defaults
from dflash_local.server.router import proxy
from dflash_local.server.router.catalog import Catalog
from dflash_local.server.router.instance import Launch
from dflash_local.server.router.model import Model
from dflash_local.server.router.pool import Pool
from dflash_local.server.router.router import Router, RouterOptions
from dflash_local.server.router.router_app import create_router_app
from dflash_local.server.security.limits import Limits
from dflash_local.server.security.origins import Cors
from dflash_local.server.settings import Settings
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live_app, raw_request, serving
from tests.server.test_limits import bodies_held

SCRIPT = Path(__file__).with_name("scripted_instance.py")
ROOT = SCRIPT.parents[2]


class Fixed(Catalog):
    """A catalog of given models."""

    def __init__(self, *models: Model) -> None:
        object.__setattr__(self, "models", {model.name: model for model in models})

    def read(self) -> dict[str, Model]:
        return dict(self.__dict__["models"])


def model(name: str, **more: Any) -> Model:
    return Model(name, "preset", {"model": (f"--model={name}",)}, stop_timeout=0.2, **more)


@contextmanager
def routing(
    folder: Path, *models: Model, settings: Settings | None = None, launch: Launch | None = None, **options: Any
) -> Iterator[Live]:
    """A router of scripted models."""
    folder.mkdir(exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    launch = launch or Launch((sys.executable, str(SCRIPT)), env, folder)
    settings = settings or Settings()
    router = Router(Fixed(*models), launch, RouterOptions(**options), settings)
    router.read()
    with live_app(create_router_app(router), settings) as server:
        yield server


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Short enough for the path of a socket."""
    path = Path(f"/tmp/dflash-test-{os.getpid()}-{time.monotonic_ns()}")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def ask(server: Live, name: str, **body: Any) -> httpx.Response:
    return server.http.post("/v1/chat/completions", json={"model": name, **body})


def listed(server: Live, query: str = "") -> dict[str, dict[str, Any]]:
    answer = server.http.get("/models" + query).raise_for_status().json()
    return {entry["id"]: entry for entry in answer["data"]}


def router_of(server: Live) -> Router:
    router: Any = server.service
    assert isinstance(router, Router)
    return router


def pool(server: Live) -> Pool:
    return router_of(server).pool


def user_count(server: Live, name: str) -> int:
    instance = pool(server).find(name)
    assert instance is not None
    return instance.users


def status(server: Live, name: str) -> str:
    return str(listed(server)[name]["status"]["value"])


def background(work: Callable[[], httpx.Response]) -> tuple[threading.Thread, list[httpx.Response]]:
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


def keep_busy(server: Live) -> tuple[int, threading.Thread, list[httpx.Response]]:
    """Model a's process, which answers until there is a file `done`, and who waits for that answer."""
    pid = ask(server, "a").json()["pid"]
    wait_until(lambda: user_count(server, "a") == 0)  # an answer is here before its use has ended
    busy, kept = background(lambda: ask(server, "a", wait="done"))
    wait_until(lambda: user_count(server, "a") == 1)
    return pid, busy, kept


def queue_up(server: Live, names: str) -> tuple[list[str], list[tuple[threading.Thread, list[httpx.Response]]]]:
    """Requests for models that wait one after the other: the names in the order of their answers, and who waits."""
    order: list[str] = []

    def wait_for(name: str) -> httpx.Response:
        answer = httpx.post(f"{server.url}/completion", json={"model": name}, timeout=PATIENCE)
        order.append(name)
        return answer

    waiting = []
    for count, name in enumerate(names, 1):
        waiting.append(background(partial(wait_for, name)))
        wait_until(lambda count=count: pool(server).n_waiting == count)  # type: ignore[misc]
    return order, waiting


# ---- requests ----


def test_the_model_of_a_request_answers_it(folder: Path) -> None:
    with routing(folder, model("a", aliases=("first",), tags=("small",)), model("b")) as server:
        assert status(server, "a") == "unloaded"
        headers = {"Authorization": "Bearer x", "X-Api-Key": "x", "Cookie": "c=1", "Origin": server.url, "X-Mine": "1"}
        body = {"model": "first", "text": "ä"}
        answer = server.http.post("/v1/completions?verbose=1", json=body, headers=headers).raise_for_status().json()
        assert (answer["by"], answer["path"], answer["body"]) == ("a", "/v1/completions?verbose=1", body)
        assert answer["headers"]["x-mine"] == "1"
        assert not {"authorization", "x-api-key", "cookie", "origin"} & answer["headers"].keys()
        assert ask(server, "b").json()["by"] == "b"
        assert server.http.get("/slots?model=a").json()["by"] == "a"
        assert server.http.get("/props?model=b").json()["by"] == "b"
        models = listed(server)
        assert (models["a"]["aliases"], models["a"]["tags"]) == (["first"], ["small"])
        assert models["a"]["status"]["value"] == models["b"]["status"]["value"] == "loaded"
        assert models["a"]["meta"] == {"n_params": 7}
        assert models["a"]["architecture"]["input_modalities"] == ["text", "image"]
        assert server.http.get("/v1/models/first").json() == models["a"]
        assert server.http.get("/v1/models/none").status_code == 404


def test_an_answer_passes_as_it_is(folder: Path) -> None:
    with routing(folder, model("a")) as server:
        answer = ask(server, "a", status=429)
        assert (answer.status_code, answer.json()["by"]) == (429, "a")
        assert ask(server, "a", events=3).text == "data: 0\n\ndata: 1\n\ndata: 2\n\n"
        with server.http.stream("POST", "/v1/completions", json={"model": "a", "events": 2, "wait": "read"}) as stream:
            parts = stream.iter_text()
            assert next(parts) == "data: 0\n\n"  # while the next is not written yet
            (folder / "read").touch()
            assert "".join(parts) == "data: 1\n\n"


def test_an_address_passes_as_it_is(folder: Path) -> None:
    """Whatever characters it has, since it is the instance that refuses them."""
    with routing(folder, model("a")) as server:
        for path in ("/slots/%3F?action=erase", "/slots/%23", "/slots/%00", "/slots/%0A", "/slots/%2541"):
            answer = server.http.post(path)
            assert (answer.status_code, answer.json()["path"]) == (200, path)
        with raw_request(server, "POST", "/slots/#?action=#") as client:
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_who_names_no_model(folder: Path) -> None:
    with routing(folder, model("a")) as server:  # the only one
        assert server.http.post("/completion", json={}).json()["by"] == "a"
    with routing(folder, model("a"), model("b", hidden=True), model("c")) as server:
        for answer in (server.http.post("/completion", json={}), server.http.get("/slots")):
            assert answer.status_code == 400
            assert answer.json()["error"]["message"] == "model name is missing from the request; there are a, c"
        assert list(listed(server)) == ["a", "c"]
        assert ask(server, "b").json()["by"] == "b"


def test_a_quantization_in_small_letters(folder: Path) -> None:
    with routing(folder, model("org/a:Q4_K_M"), model("b:7b-chat")) as server:
        for asked, by in (("org/a:q4_k_m", "org/a:Q4_K_M"), ("b:7b-chat", "b:7b-chat")):
            assert ask(server, asked).json()["by"] == by
        assert ask(server, "b:CHAT").status_code == 404


def test_what_clients_see_of_a_command_line(folder: Path) -> None:
    """Whatever bytes a path has, and no passwords."""
    words = ("--model=b\udce8.gguf", "--mmproj-url=https://me:secret@host/p", '--chat-template-kwargs={"a": "//b@c"}')
    with routing(folder, Model("a", "preset", {"all": words})) as server:
        args = listed(server)["a"]["status"]["args"]
        shown = ["--model=b\ufffd.gguf", "--mmproj-url=https://host/p", words[2]]
        assert [word for word in args if word in shown] == shown
        assert "secret" not in str(args)
        assert ask(server, "a").json()["by"] == "a"


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/chat/completions", {"model": "x"}, 404),
        ("/completion", {"model": "x"}, 400),
        ("/v1/chat/completions", {"model": 5}, 400),
        ("/v1/chat/completions", [1], 400),
        ("/models/load", {"model": "x"}, 404),
        ("/models/unload", {"model": "x"}, 400),
        ("/models/unload", {"model": "a"}, 400),
        ("/models/load", {}, 400),
        ("/models", {"model": "a"}, 501),
        ("/no/such/path", {"model": "a"}, 404),
        ("/tools", {"model": "a"}, 501),
    ],
)
def test_refusals(folder: Path, path: str, body: Any, expected: int) -> None:
    with routing(folder, model("a"), model("b")) as server:
        answer = server.http.post(path, json=body)
        assert answer.status_code == expected
        assert answer.json()["error"]["message"]
        assert {entry["status"]["value"] for entry in listed(server).values()} == {"unloaded"}


def test_the_rules_of_a_server_hold_for_a_router(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(api_keys=("other", "secret"), api_prefix="/llm")
    with caplog.at_level(logging.INFO), routing(folder, model("a"), settings=settings) as server:
        assert server.http.get("/llm/models").status_code == 401
        assert server.http.get("/models").status_code == 404
        key = {"Authorization": "Bearer secret"}
        url = "/llm/v1/completions"
        assert server.http.post(url, json={"model": "a"}).status_code == 401
        origin = {"Origin": "http://page.example", "X-Dflash-Key": "7"}
        answer = server.http.post(url, json={"model": "a"}, headers={**key, **origin})
        assert answer.json()["headers"]["x-dflash-key"] == "2"  # the key's number, whatever the client says
        assert answer.json()["path"] == "/v1/completions"
        assert answer.headers["Access-Control-Allow-Origin"] == "http://page.example"
        assert server.http.head("/llm/models", headers=key).status_code == 200
        assert server.http.get("/llm/").text.startswith("<!doctype html>")
        document = server.http.get("/llm/openapi.json", headers=key).json()
        assert {"/v1/chat/completions", "/v1/messages", "/models/load"} <= document["paths"].keys()
        assert {"get", "post"} <= document["paths"]["/models"].keys()
    assert any("POST /llm/v1/completions 200" in line and "model a" in line for line in caplog.messages)
    assert ("[a] it is only a script", logging.WARNING) in [(r.getMessage(), r.levelno) for r in caplog.records]


def test_props_and_metrics(folder: Path) -> None:
    with routing(folder, model('a"'), model("b"), models_max=3, autoload=False) as server:
        props = server.http.get("/props").json()
        assert (props["role"], props["max_instances"], props["models_autoload"]) == ("router", 3, False)
        assert ask(server, 'a"').status_code == 400
        assert server.http.post("/v1/completions?autoload=1", json={"model": 'a"'}).status_code == 200
        lines = server.http.get("/metrics").text.splitlines()
        assert 'dflash:router_models{status="loaded"} 1' in lines
        assert 'dflash:router_requests_total{model="a\\""} 1' in lines
        assert lines[-2:] == ['x:n{model="a\\""} 3', 'x:m{model="a\\"",a="b"} 4']
        assert "x:n 3" in server.http.get('/metrics?model=a"').text


# ---- loading and making room ----


def test_the_least_recently_used_makes_room(folder: Path) -> None:
    with routing(folder, *map(model, "abc"), models_max=2) as server:
        for name in "aba":
            ask(server, name).raise_for_status()
        server.http.get("/slots?model=b").raise_for_status()  # a look is no use
        assert ask(server, "c").json()["by"] == "c"
        assert [status(server, name) for name in "abc"] == ["loaded", "unloaded", "loaded"]
        assert "dflash:router_evictions_total 1" in server.http.get("/metrics").text


def test_a_busy_model_stays(folder: Path) -> None:
    """Who finds no room waits, in order; a model that answers is not ended."""
    with routing(folder, *map(model, "abc"), models_max=1) as server:
        pid, busy, kept = keep_busy(server)
        order, waiting = queue_up(server, "bcb")
        refused = server.http.post("/models/load", json={"model": "c"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_room")
        assert int(refused.headers["Retry-After"]) > 0
        (folder / "done").touch()
        for thread, answers in ((busy, kept), *waiting):
            thread.join(PATIENCE)
            assert answers[0].status_code == 200
        assert kept[0].json()["pid"] == pid
        assert order == ["b", "b", "c"]  # one load serves both of b, which came before c


def test_who_leaves_the_queue_costs_nobody_his_place(folder: Path) -> None:
    with routing(folder, *map(model, "ab"), models_max=1) as server:
        pid, busy, kept = keep_busy(server)
        client = raw_request(server, "POST", "/completion", {"model": "b"})
        wait_until(lambda: pool(server).n_waiting == 1)
        client.close()
        wait_until(lambda: pool(server).n_waiting == 0)
        (folder / "done").touch()
        busy.join(PATIENCE)
        assert kept[0].status_code == 200
        time.sleep(0.1)
        assert status(server, "b") == "unloaded"
        assert ask(server, "a").json()["pid"] == pid


def test_a_busy_model_drains_for_an_older_request(folder: Path) -> None:
    """New requests for it come later, as overlapping ones would keep it for ever."""
    with routing(folder, *map(model, "ab"), models_max=1) as server:
        pid, busy, kept = keep_busy(server)
        order, waiting = queue_up(server, "ba")
        assert server.http.get("/slots?model=a").json()["pid"] == pid  # a look does not wait
        # Nor does what is about an answer that is being written, or must load no model.
        for path in ("/v1/chat/completions/control", "/completion?autoload=0"):
            assert server.http.post(path, json={"model": "a"}).json()["pid"] == pid
        (folder / "done").touch()
        for thread, answers in ((busy, kept), *waiting):
            thread.join(PATIENCE)
            assert answers[0].status_code == 200
        assert kept[0].json()["pid"] == pid and order == ["b", "a"]


def test_a_model_drains_only_while_another_one_waits(folder: Path) -> None:
    with routing(folder, *map(model, "ab"), models_max=1) as server:
        pid, busy, kept = keep_busy(server)
        client = raw_request(server, "POST", "/completion", {"model": "b"})
        wait_until(lambda: pool(server).n_waiting == 1)
        again, answers = background(lambda: ask(server, "a"))
        wait_until(lambda: pool(server).n_waiting == 2)
        client.close()
        again.join(PATIENCE)
        assert answers[0].json()["pid"] == pid and busy.is_alive()
        (folder / "done").touch()
        busy.join(PATIENCE)
        assert kept[0].json()["pid"] == pid


def test_the_queue_is_bounded(folder: Path) -> None:
    with routing(folder, model("slow"), max_queue=1) as server:
        first, answers = background(lambda: ask(server, "slow"))
        wait_until(lambda: pool(server).n_waiting == 1)
        answer = httpx.post(f"{server.url}/completion", json={"model": "slow"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        assert "Retry-After" in answer.headers
        (folder / "go").touch()
        first.join(PATIENCE)
        assert answers[0].status_code == 200


def test_a_queue_without_places_loads_models_all_the_same(folder: Path) -> None:
    """Somebody must wait for a model, or none would ever be loaded."""
    models = (model("a", on_startup=True), model("b", on_startup=True), model("c"), model("slow"))
    with routing(folder, *models, max_queue=0) as server:
        wait_until(lambda: status(server, "a") == status(server, "b") == "loaded")
        assert ask(server, "c").status_code == 200
        assert server.http.post("/models/load", json={"model": "slow"}).status_code == 200
        first, answers = background(lambda: ask(server, "slow"))
        wait_until(lambda: pool(server).n_waiting == 2)
        answer = httpx.post(f"{server.url}/completion", json={"model": "slow"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        (folder / "go").touch()
        first.join(PATIENCE)
        assert answers[0].status_code == 200


def test_other_sites_load_no_model(folder: Path) -> None:
    """Neither by a picture nor by a link; pages that may use the server do."""
    settings = Settings(cors=Cors(("localhost", "https://a.example")))
    with routing(folder, model("a"), settings=settings) as server:
        site = {"Sec-Fetch-Site": "cross-site", "Referer": "https://evil.example/"}
        picture, link = ({**site, "Sec-Fetch-Mode": mode} for mode in ("no-cors", "navigate"))
        refused = server.http.get("/props?model=a&autoload=1", headers=picture)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin_not_allowed")
        led = server.http.get("/props?model=a&autoload=1", headers=link)
        assert (led.status_code, led.json()["error"]["code"]) == (400, "model_not_loaded")
        assert status(server, "a") == "unloaded"
        allowed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": "https://a.example"}
        answer = server.http.get("/props?model=a", headers=allowed).json()
        assert answer["by"] == "a" and "sec-fetch-site" not in answer["headers"]  # the router has looked at it
        assert server.http.get("/props?model=a", headers=link).json()["by"] == "a"  # it is loaded now


def test_a_stream_is_pinged_while_its_model_loads(folder: Path) -> None:
    with routing(folder, model("slow")) as server:
        body = {"model": "slow", "stream": True, "events": 2, "ignored": "zeal", "sse_ping_interval": 1}
        with server.http.stream("POST", "/v1/completions", json=body) as stream:
            assert stream.status_code == 200
            parts = stream.iter_text()
            assert any(part.startswith(": loading 25 %") for part in parts)  # not the first, if it starts slowly
            entry = listed(server)["slow"]["status"]
            assert (entry["value"], entry["progress"]) == ("loading", 0.25)
            (folder / "go").touch()
            rest = "".join(parts).replace(": loading 25 %\n\n", "")
            assert rest == ": X-DFlash-Ignored: zeal\n\ndata: 0\n\ndata: 1\n\n"


def test_bodies_of_streams_that_wait_for_their_model_are_bounded(folder: Path) -> None:
    """Also once such a stream was begun; what the instance has got neither counts nor stays here."""
    settings = Settings(limits=Limits(bodies=1000, free_body=0), defaults=Defaults(ping_interval=0.05))
    with routing(folder, model("slow"), settings=settings) as server:
        body = {"model": "slow", "stream": True, "events": 2, "wait": "read", "prompt": 600 * "x"}
        with server.http.stream("POST", "/v1/completions", json=body) as stream:
            parts = stream.iter_text()
            assert next(parts).startswith(": loading ")
            refused = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_bodies")
            (folder / "go").touch()
            assert any(part.endswith("data: 0\n\n") for part in parts)
            answers = [one for one in gc.get_objects() if type(one) is proxy.Forwarded]
            assert bodies_held(server) == 0
            assert answers and not any(b"xxx" in one._incoming.body for one in answers)
            (folder / "read").touch()
            assert "".join(parts) == "data: 1\n\n"


@pytest.mark.parametrize("seconds", [10**400, True, -2], ids=["endless", "true", "negative"])
def test_pings_that_the_instance_refuses_are_as_usual(folder: Path, seconds: int) -> None:
    settings = Settings(defaults=Defaults(ping_interval=0.05))
    with routing(folder, model("slow"), settings=settings) as server:
        waiting, answers = background(lambda: ask(server, "slow", stream=True, sse_ping_interval=seconds))
        wait_until(lambda: status(server, "slow") == "loading")
        time.sleep(0.2)
        (folder / "go").touch()
        waiting.join(PATIENCE)
        assert answers[0].status_code == 200
        assert answers[0].text.startswith(": loading ")


def test_a_model_is_loaded_and_unloaded_by_hand(folder: Path) -> None:
    with routing(folder, model("slow"), autoload=False) as server:
        assert server.http.post("/models/load", json={"model": "slow"}).json() == {"success": True}
        again = server.http.post("/models/load", json={"model": "slow"})
        assert (again.status_code, again.json()["error"]["message"]) == (400, "model is already running")
        waiting, answers = background(lambda: ask(server, "slow"))
        wait_until(lambda: pool(server).n_waiting == 2)
        assert server.http.post("/models/unload", json={"model": "slow"}).json() == {"success": True}
        waiting.join(PATIENCE)
        assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "unloaded")
        wait_until(lambda: status(server, "slow") == "unloaded")
        assert "failed" not in listed(server)["slow"]["status"]
        (folder / "go").touch()
        server.http.post("/models/load", json={"model": "slow"}).raise_for_status()
        wait_until(lambda: status(server, "slow") == "loaded")
        assert ask(server, "slow").status_code == 200


def test_models_of_the_start(folder: Path) -> None:
    with routing(folder, model("a", on_startup=True), model("b")) as server:
        wait_until(lambda: status(server, "a") == "loaded")
        assert status(server, "b") == "unloaded"
    with (
        pytest.raises(RequestError, match="2 models are to be loaded at the start, and --models-max is 1"),
        routing(folder, model("a", on_startup=True), model("b", on_startup=True), models_max=1),
    ):
        pass


# ---- Ollama's API ----


def test_ollamas_clients_choose_among_the_models(folder: Path, pocket: dict[str, Path]) -> None:
    with routing(folder, model("a", path=pocket["target"]), model("b:7b", aliases=("c",))) as server:
        listed = server.http.get("/api/tags").raise_for_status().json()["models"]
        assert [entry["name"] for entry in listed] == ["a:latest", "b:7b"]
        assert [entry["details"]["family"] for entry in listed] == ["qwen3", ""]
        shown = server.http.post("/api/show", json={"model": "a"}).raise_for_status().json()
        assert shown["model_info"]["qwen3.context_length"] > 0
        client = ollama.Client(host=server.url)
        assert [found.model for found in client.list().models] == ["a:latest", "b:7b"]
        assert client.show("a:latest").capabilities
        assert server.http.get("/api/ps").json() == {"models": []}  # nothing was loaded for that
        for path in ("/api/chat", "/api/generate", "/api/embed"):
            for name, by in (("a:latest", "a"), ("a", "a"), ("c:latest", "b:7b")):
                asked = {"model": name, "messages": [1], "prompt": "x"}
                answer = server.http.post(path, json=asked).raise_for_status().json()
                assert (answer["by"], answer["path"], answer["body"]) == (by, path, asked)
        assert [entry["name"] for entry in server.http.get("/api/ps").json()["models"]] == ["a:latest", "b:7b"]
        assert [found.model for found in client.ps().models] == ["a:latest", "b:7b"]
        for path in ("/api/chat", "/api/show"):
            missing = server.http.post(path, json={"model": "llama3"})
            assert (missing.status_code, missing.json().keys()) == (404, {"error"})
            assert "there are a, b:7b" in missing.json()["error"]
        assert "dflash-local pull" in server.http.post("/api/pull", json={"model": "llama3"}).json()["error"]


def test_keep_alive_0_ends_the_process_of_a_model(folder: Path) -> None:
    with routing(folder, model("a")) as server:
        asked: dict[str, Any] = {"model": "a", "prompt": "x"}
        waiting, answers = background(lambda: server.http.post("/api/generate", json={**asked, "wait": "go"}))
        wait_until(lambda: user_count(server, "a") == 1)
        busy = server.http.post("/api/generate", json={"model": "a", "keep_alive": 0})
        assert (busy.status_code, busy.json()) == (503, {"error": "the model is answering: ask again later"})
        (folder / "go").touch()
        waiting.join(PATIENCE)
        assert answers[0].status_code == 200
        wait_until(lambda: user_count(server, "a") == 0)
        freed = server.http.post("/api/generate", json={"model": "a", "keep_alive": "0s"}).raise_for_status().json()
        assert freed["done_reason"] == "unload"
        wait_until(lambda: status(server, "a") == "unloaded")
        assert server.http.post("/api/chat", json={"model": "a", "messages": [], "keep_alive": 0}).status_code == 200
        assert status(server, "a") == "unloaded"


def test_ollamas_streams_have_parts_without_text_while_the_model_loads(folder: Path) -> None:
    with routing(folder, model("slow")) as server:
        body = {"model": "slow", "prompt": "x", "events": 1, "sse_ping_interval": 1}
        with server.http.stream("POST", "/api/generate", json=body) as stream:
            assert stream.headers["content-type"] == "application/x-ndjson"
            lines = stream.iter_lines()
            first = json.loads(next(lines))
            assert (first["model"], first["response"], first["done"]) == ("slow", "", False)
            (folder / "go").touch()
            assert "data: 0" in "\n".join(lines)


def test_ollamas_clients_learn_what_was_ignored(folder: Path) -> None:
    """Also in a stream that was begun before its model was loaded, by a part without text."""
    with routing(folder, model("slow")) as server:
        body = {"model": "slow", "prompt": "x", "events": 1, "ignored": "zeal", "sse_ping_interval": 1}
        with server.http.stream("POST", "/api/generate", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            (folder / "go").touch()
            told = [json.loads(line) for line in lines if line.startswith("{")]
        assert (told[-1]["X-DFlash-Ignored"], told[-1]["response"], told[-1]["done"]) == ("zeal", "", False)
        loaded = server.http.post("/api/generate", json=body)
        assert loaded.headers["X-DFlash-Ignored"] == "zeal" and "zeal" not in loaded.text


# ---- failures ----


def test_a_model_that_cannot_be_loaded(folder: Path) -> None:
    with routing(folder, model("broken")) as server:
        for _ in range(2):  # each request tries again
            answer = ask(server, "broken")
            assert answer.status_code == 500
            assert "its process ended (status 3): the file is damaged fix: download it again" in answer.text
        told = listed(server)["broken"]["status"]
        assert (told["value"], told["failed"], told["exit_code"]) == ("unloaded", True, 3)
        assert "the file is damaged" in told["error"]
        assert server.http.get("/health").status_code == 200


def test_a_stream_that_was_begun_ends_with_the_error(folder: Path) -> None:
    """In the words of whose API was asked."""
    waits = f"while [ ! -e {folder}/go ]; do sleep 0.05; done; rm {folder}/go; exit 4"
    with routing(folder, model("slow"), launch=Launch(("/bin/sh", "-c", waits), {}, folder)) as server:

        def last_event(path: str) -> str:
            body = {"model": "slow", "stream": True, "sse_ping_interval": 1}
            with server.http.stream("POST", path, json=body) as stream:
                parts = stream.iter_text()
                assert next(parts)  # it was begun
                (folder / "go").touch()
                return "".join(parts).strip().split("\n\n")[-1]

        last = last_event("/v1/chat/completions")
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "load_failed"
        event, _, data = last_event("/v1/messages").partition("\n")
        assert (event, json.loads(data.removeprefix("data: "))["type"]) == ("event: error", "error")
        line = last_event("/api/chat").splitlines()[-1]
        assert "could not be loaded" in json.loads(line)["error"]


def test_a_model_that_dies_is_loaded_again(folder: Path) -> None:
    with routing(folder, model("a")) as server:
        pid = ask(server, "a").json()["pid"]
        answer = ask(server, "a", die=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "died")
        wait_until(lambda: status(server, "a") == "unloaded")
        text = ask(server, "a", events=5, die_at=1).text
        assert text.startswith("data: 0\n\ndata: 1\n\ndata: {")
        assert json.loads(text.split("data: ")[-1])["error"]["code"] == "died"
        wait_until(lambda: listed(server)["a"]["status"].get("exit_code") == 9)
        assert ask(server, "a").json()["pid"] != pid


def test_a_program_that_is_not_there(folder: Path) -> None:
    with routing(folder, model("a"), launch=Launch(("/no/such/program",), {}, folder)) as server:
        answer = ask(server, "a")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "load_failed")


def test_the_clients_leaving_ends_the_work(folder: Path) -> None:
    with routing(folder, model("a")) as server:
        ask(server, "a").raise_for_status()
        with server.http.stream("POST", "/v1/completions", json={"model": "a", "events": 500}) as stream:
            next(stream.iter_raw())
        wait_until(lambda: bool(list(folder.glob("*.left"))))
        wait_until(lambda: user_count(server, "a") == 0)


def test_a_named_stream_outlives_its_client(folder: Path) -> None:
    """It is the router that keeps it; the instance's client stays."""
    with routing(folder, model("a")) as server:
        body, headers = {"model": "a", "stream": True, "events": 30}, {"X-Conversation-Id": "talk"}
        with server.http.stream("POST", "/v1/completions", json=body, headers=headers) as stream:
            next(stream.iter_raw())
        kept = server.http.get("/v1/stream?conv_id=talk").raise_for_status().text
        assert kept == "".join(f"data: {number}\n\n" for number in range(30))
        with server.http.stream("POST", "/v1/completions", json={**body, "events": 500}, headers=headers) as stream:
            next(stream.iter_raw())
        assert server.http.delete("/v1/stream?conv_id=talk").status_code == 204
        wait_until(lambda: user_count(server, "a") == 0)
        assert "x-conversation-id" not in ask(server, "a").json()["headers"]


# ---- changes of what there is ----


def test_what_there_is_is_looked_up_again(folder: Path) -> None:
    with routing(folder, *map(model, "abc")) as server:
        pids = {name: ask(server, name).json()["pid"] for name in "abc"}
        changed = Model("b", "preset", {"model": ("--model=b",), "n_ctx": ("-c", "64")}, stop_timeout=0.2)
        models = router_of(server)._catalog.__dict__["models"]
        models.update(b=changed, d=model("d"))
        del models["c"]
        assert list(listed(server, "?reload=0")) == ["a", "b", "c"]
        assert list(listed(server, "?reload=1")) == ["a", "b", "d"]
        assert ask(server, "a").json()["pid"] == pids["a"]
        assert ask(server, "b").json()["pid"] != pids["b"]
        assert ask(server, "c").status_code == 404
        wait_until(lambda: not any(psutil.pid_exists(pids[name]) for name in "bc"))


def test_a_model_that_goes_when_it_has_just_been_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited for it learns of both at once, and nothing of it stays in the queue."""
    with routing(folder, *map(model, "ab"), models_max=1) as server:
        router = router_of(server)
        publish = router.events.publish

        def published(event: str, name: str, data: dict[str, Any] | None = None) -> None:
            publish(event, name, data)
            if name == "a" and data and data["status"] == "loaded":
                router.pool.set_models({"b": model("b")})

        monkeypatch.setattr(router.events, "publish", published)
        answer = ask(server, "a")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unloaded")
        assert pool(server).n_waiting == 0
        assert ask(server, "b").json()["by"] == "b"
        assert ask(server, "a").status_code == 404


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_model_that_goes_after_it_was_found(folder: Path, is_replaced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another one has its name by then."""
    with routing(folder, model("a")) as server:
        models = pool(server)

        async def changed(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
            models.set_models({})
            models.set_models({"a": model("a")} if is_replaced else {})
            await while_connected(receive, work)

        monkeypatch.setattr(proxy, "while_connected", changed)
        answer = ask(server, "a")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unloaded")
        assert pool(server).n_waiting == 0


def test_events_are_told(folder: Path) -> None:
    with routing(folder, model("a")) as server, server.http.stream("GET", "/models/sse") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        httpx.post(f"{server.url}/completion", json={"model": "a"}).raise_for_status()
        httpx.post(f"{server.url}/models/unload", json={"model": "a"}).raise_for_status()
        found: list[Any] = []
        while not found or found[-1]["data"]["status"] != "unloaded":
            if (line := next(lines)).startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
    assert [(event["event"], event["data"]["status"]) for event in found] == [
        ("model_status", "loading"),
        ("status_change", "loaded"),
        ("status_change", "unloaded"),
    ]
    assert found[0]["model"] == "a"
    assert found[1]["data"]["info"]["meta"] == {"n_params": 7}


def test_a_router_that_stops_ends_its_models(folder: Path) -> None:
    with routing(folder, model("a"), model("slow")) as server:
        pid = ask(server, "a").json()["pid"]
        server.http.post("/models/load", json={"model": "slow"})
        stream = raw_request(server, "GET", "/models/sse")
    assert not psutil.pid_exists(pid)
    assert not [one for one in psutil.Process().children() if str(SCRIPT) in one.cmdline()]
    assert not folder.exists()
    stream.close()


# ---- the command itself ----


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory, pocket: dict[str, Path]) -> Path:
    """A pair, and a file whose end is missing."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "small.gguf").symlink_to(pocket["target"])
    (folder / "dflash-small.gguf").symlink_to(pocket["dflash"])
    (folder / "cut.gguf").write_bytes(pocket["target"].read_bytes()[:200_000])
    return folder


FLAGS = ("-c", "1024", "-np", "1", "--no-warmup", "--no-cost-cache", "--temp", "0")


def test_serve_as_a_router(models_dir: Path, tmp_path: Path) -> None:
    """From the flags to a drafted answer, and to the end of all processes when the router is killed."""
    env = {"LLAMA_CACHE": str(tmp_path), "LLAMA_ARG_SPEC_DRAFT_N_MAX": "5"}
    with serving(("--models-dir", models_dir, *FLAGS, "-hft", "a-secret"), env) as (process, url):
        names = [entry["id"] for entry in httpx.get(f"{url}/v1/models").json()["data"]]
        assert names == ["cut", "small"]
        failed = httpx.post(f"{url}/v1/completions", json={"model": "cut", "prompt": "x"}, timeout=60)
        assert failed.status_code == 500
        assert "(status 1): " in failed.json()["error"]["message"]
        body: Any = {"model": "small", "prompt": "The chemical symbol of helium", "max_tokens": 12}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).raise_for_status().json()
        assert answer["model"] == "small"
        assert answer["choices"][0]["text"]
        entry = httpx.get(f"{url}/v1/models/small").json()
        assert {"-c", "1024"} <= set(entry["status"]["args"])
        assert "a-secret" not in entry["status"]["args"]
        assert entry["meta"]["n_ctx"] == 1024
        drafter = httpx.get(f"{url}/props?model=small").json()["dflash"]["drafter"]
        assert drafter["kind"] == "dflash"
        with httpx.stream("POST", f"{url}/v1/completions", json={**body, "stream": True}) as stream:
            events = [line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: ")]
        assert "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1]) == answer["choices"][0]["text"]
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(signal.SIGKILL)
        psutil.wait_procs(children, 10)
        assert not [child for child in children if child.is_running()]
        socket = entry["status"]["args"][entry["status"]["args"].index("--host") + 1]
        assert not Path(socket).parent.exists()


def test_ctrl_c_ends_a_router_and_its_models(models_dir: Path, tmp_path: Path) -> None:
    flags = ("--models-dir", models_dir, *FLAGS, "--draft", "off")
    with serving(flags, {"LLAMA_CACHE": str(tmp_path)}) as (process, url):
        body: Any = {"model": "small", "prompt": "The", "max_tokens": 500, "stream": True, "ignore_eos": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            children = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)
            *_, last = [line for line in lines if line]
        assert last == "data: [DONE]"  # what runs may finish
        assert process.wait(PATIENCE) == 0
        assert not [child for child in children if child.is_running()]
