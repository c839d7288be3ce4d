"""What a server imports until it is ready, and what it imports only then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Match, Route

from dflash_local.cli.flags.named_models import Models
from dflash_local.cli.serving import serve_app
from dflash_local.engine import Engine
from dflash_local.server import late_routes
from dflash_local.server.app import LATE, create_app
from dflash_local.server.settings import Settings
from dflash_local.server.sleep import Sleep
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live, live_app

# Prints the modules that are loaded when the server says that it is ready, and the classes that pydantic has built.
AT_READY = """
import json, logging, os, sys
from dflash_local import cli

def classes(owner):
    for kind in owner.__subclasses__():
        yield kind
        yield from classes(kind)

class Watch(logging.Handler):
    def emit(self, record):
        if record.getMessage().startswith("ready: "):
            from pydantic import BaseModel
            kinds = [kind for kind in classes(BaseModel) if kind.__module__.startswith("dflash_local.")]
            built = [kind.__name__ for kind in kinds if kind.__pydantic_complete__]
            print(json.dumps({"modules": [*sys.modules], "n_classes": len(kinds), "built": built}), flush=True)
            os._exit(0)

logging.getLogger("dflash_local.server.service").addHandler(Watch())
cli.main(sys.argv[1:])
"""
# Each would be a part of the time until a plain model answers, and is for others: files of other programs, builds,
# flags that were not given, bodies and answers of other formats, the docs, uvicorn's command line.
UNUSED = {
    "difflib", "click", "multiprocessing", "numpy", "fastapi", "huggingface_hub",
    "starlette.staticfiles", "dflash_local.hub.local_models", "dflash_local.hub.cache",
    "dflash_local.diagnose.companions", "dflash_local.demo.shapes", "dflash_local.build.recipe",
    "dflash_local.build.installation", "dflash_local.cli.serving.serve_router",
    "dflash_local.cli.serving.serve_replicas", "dflash_local.cli.terminal.greeting", "dflash_local.server.adapting",
    "dflash_local.train.adaptation", "dflash_local.server.openapi",
    "dflash_local.server.docs", "dflash_local.server.infill", "dflash_local.server.embeddings.embedding_process",
    "dflash_local.server.fields.documents", "dflash_local.server.fields.completion",
    "dflash_local.server.fields.ollama", "dflash_local.server.fields.messages",
    "dflash_local.server.fields.responses", "dflash_local.server.formats.machine_report",
}  # fmt: skip


def test_until_it_is_ready_a_plain_server_imports_little(pocket: dict[str, Path]) -> None:
    flags = ["--draft", "off", "-c", "256", "-np", "1", "-t", "1", "--no-warmup", "--port", "0"]
    command = [sys.executable, "-c", AT_READY, "serve", "-m", str(pocket["target"]), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "dflash_local.server.app" in found["modules"]
    assert (UNUSED | {f"dflash_local.server.routes.{name}" for name in LATE}) & {*found["modules"]} == set()
    assert found["n_classes"] > 10
    assert {*found["built"]} <= {"ChatRequest"}  # it is built while the model loads


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """One that never has a pause."""
    monkeypatch.setattr(late_routes, "PAUSE", PATIENCE)
    settings = Settings(alias="fake", api_keys=("secret",))
    with live(lambda _progress: Engine.over(FakeNative()), settings) as running:
        running.http.headers["Authorization"] = "Bearer secret"
        yield running


def paths(server: Live) -> list[str]:
    """Those that are there by now."""
    return [route.path for route in server.app.router.routes if isinstance(route, Route)]


def test_routes_come_when_they_are_asked_for(server: Live) -> None:
    assert "/v1/chat/completions" in paths(server)
    assert "/tokenize" not in paths(server)
    answer = server.http.post("/tokenize", json={"content": "ab"})
    assert answer.json() == {"tokens": [97, 98]}
    assert "/tokenize" in paths(server)
    assert "/api/version" not in paths(server)  # no more than was needed
    assert server.http.get("/api/version").json()["version"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/chat", 405),
        ("DELETE", "/v1/completions", 405),
        ("HEAD", "/api/version", 200),
        ("GET", "/api//version/", 200),
        ("POST", "/tools", 501),
        ("GET", "/v1/responses/r1", 404),
        ("GET", "/nothing", 404),
        ("GET", "/openapi.json", 200),
        ("GET", "/docs", 200),
        ("GET", "/v1/chat/completions", 405),
    ],
)
def test_they_answer_as_if_they_had_been_there(server: Live, method: str, path: str, status: int) -> None:
    first = server.http.request(method, path)
    assert len(server.app.routes) > len(LATE)  # all of them, from here on
    again = server.http.request(method, path)
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.status_code == status
    assert first.headers.get("allow") == again.headers.get("allow")
    assert ("allow" in first.headers) == (status == 405)


def test_without_a_key_nothing_is_imported(server: Live) -> None:
    before = paths(server)
    assert server.http.get("/api/tags", headers={"Authorization": ""}).status_code == 401
    assert paths(server) == before


def test_many_may_ask_at_once(server: Live) -> None:
    asked = ["/api/version", "/v1/responses/r1", "/nothing", "/tools", "/docs", "/openapi.json"] * 4
    with ThreadPoolExecutor(len(asked)) as clients:
        statuses = [*clients.map(lambda path: server.http.get(path).status_code, asked)]
    assert statuses == [200, 404, 404, 501, 200, 200] * 4
    assert len(paths(server)) == len({*all_routes()})


def all_routes() -> Iterator[tuple[str, tuple[str, ...]]]:
    for route in create_app(lambda _: Engine.over(FakeNative())).routes:
        if isinstance(route, Route):
            yield route.path, tuple(route.methods or ())


def test_no_other_route_takes_what_is_theirs() -> None:
    app = create_app(lambda _: Engine.over(FakeNative()))
    early = [*app.router.routes]
    for route in app.routes[len(early) :]:
        path = getattr(route, "path", "").replace("{", "").replace("}", "").replace(":path", "")
        scope: dict[str, Any] = {"type": "http", "path": path, "method": "GET", "headers": []}
        assert [other for other in early if other.matches(scope)[0] is not Match.NONE] == [], path


def test_all_come_in_the_first_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(lambda _: Engine.over(FakeNative()))
    early, looks = len(app.router.routes), []

    def is_used(_sleep: Sleep) -> bool:
        looks.append(len(app.router.routes))
        return len(looks) < 4

    monkeypatch.setattr(late_routes, "PAUSE", 0)
    monkeypatch.setattr(Sleep, "is_used", property(is_used))
    with live_app(app) as server:
        wait_until(lambda: "/docs" in paths(server))
        assert {"/infill", "/api/chat", "/slots/{id_slot}"} < {*paths(server)}
    assert looks[:4] == [early] * 4
    assert looks[4] > early


def test_a_drafter_is_suggested_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find one takes more imports than the server."""
    told: list[tuple[str, str, bool]] = []
    app = create_app(lambda _: Engine.over(FakeNative()))

    def suggest(models: Models, facts: Mapping[str, Any]) -> None:
        routes = [route.path for route in app.router.routes if isinstance(route, Route)]
        told.append((models.target, facts["arch"], "/infill" in routes))

    monkeypatch.setattr(late_routes, "PAUSE", 0)
    monkeypatch.setattr(serve_app, "suggest", suggest)
    serve_app._suggest_late(app.state.service, Models("a.gguf"))
    with live_app(app):
        wait_until(lambda: told != [])
    assert told == [("a.gguf", FakeNative().info()["target"]["arch"], True)]


def test_a_group_that_cannot_be_imported_is_told(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setitem(sys.modules, "dflash_local.server.routes.completions", None)
        assert server.http.post("/v1/completions", json={"prompt": "a"}).status_code == 500
    assert server.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_uvicorn_is_whole_for_whoever_asks() -> None:
    code = (
        "import sys, dflash_local.server.process, uvicorn.config\n"
        "assert 'uvicorn.main' not in sys.modules\n"
        "import uvicorn\n"
        "from uvicorn import Config, run\n"
        "assert uvicorn.Server is dflash_local.server.process.UvicornServer and uvicorn.__version__\n"
        "assert Config is uvicorn.config.Config and uvicorn.main\n"
        "assert not hasattr(uvicorn, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
