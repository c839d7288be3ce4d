"""Where a server answers: sockets, a path prefix, a folder of files, HEAD; and what its log says of it."""

from __future__ import annotations

import json
import logging
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from dflash_local.cli import parse
from dflash_local.cli.flags.logs import JsonLines, Lines, set_up_logs
from dflash_local.engine import Engine
from dflash_local.errors import DFlashError, RequestError
from dflash_local.generation import Completion, Timings
from dflash_local.server.middleware.request_log import _answers, printable
from dflash_local.server.settings import Settings
from dflash_local.server.sockets import bound, listen, url
from tests.fake_native import FakeNative
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, cancels, live, raw_request

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "a secret\nquestion"}], "max_tokens": 9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files to serve, and one beside them that must not be."""
    around = tmp_path_factory.mktemp("around")
    (around / "secret.txt").write_text("secret")
    site = around / "site"
    (site / "_app").mkdir(parents=True)
    (site / "index.html").write_text("<!doctype html>mine")
    (site / "_app" / "version.json").write_text("{}")
    (site / "link.txt").symlink_to(around / "secret.txt")
    return site


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Live]:
    settings = Settings(alias="fake", api_prefix="/llm", static=folder, api_keys=("secret",))
    with live(lambda _: Engine.over(FakeNative()), settings) as running:
        running.http.headers["Authorization"] = "Bearer secret"
        yield running


# ---- paths ----


def test_everything_is_below_the_prefix(server: Live) -> None:
    assert server.http.get("/llm/v1/models").json()["data"][0]["id"] == "fake"
    assert server.http.post("/llm" + CHAT, json=BODY).status_code == 200
    for path in ("/v1/models", "/health", "/", "/llmx/health", "/llm2"):
        answer = server.http.get(path)
        kind = "invalid_request_error" if path.startswith("/v1/") else "not_found_error"
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, kind)
        assert "below /llm" in answer.json()["error"]["message"]


def test_keys_are_asked_for_below_the_prefix(server: Live) -> None:
    assert httpx.get(server.url + "/llm/health").status_code == 200
    for path in ("/llm/v1/models", "/llm/props", "/llm/llm/health"):
        assert httpx.get(server.url + path).status_code == 401


@pytest.mark.parametrize("path", [CHAT + "/", "/" + CHAT, "/v1//chat/completions", "//v1/chat/completions//"])
def test_a_slash_too_many_is_no_redirect(server: Live, path: str) -> None:
    """A client that follows one sends a POST again without its body, or as a GET."""
    answer = server.http.post("/llm" + path, json=BODY, follow_redirects=False)
    assert (answer.status_code, answer.json()["object"]) == (200, "chat.completion")
    assert server.http.get("/llm/v1/models/", follow_redirects=False).status_code == 200
    assert httpx.get(server.url + "/llm/health/").status_code == 200
    assert httpx.get(server.url + "/llm" + path).status_code == 401  # a key is asked for as well
    assert server.http.post("/llm/v1/nothing/", json={}).status_code == 404


def test_files_need_no_key(server: Live) -> None:
    for path in ("/llm", "/llm/", "/llm/index.html"):
        answer = httpx.get(server.url + path)
        assert (answer.status_code, answer.text) == (200, "<!doctype html>mine")
    answer = httpx.get(server.url + "/llm/_app/version.json")
    assert answer.headers["content-type"] == "application/json"
    head = httpx.head(server.url + "/llm/index.html")
    assert (head.status_code, head.content) == (200, b"")
    assert httpx.get(server.url + "/llm/_app/").status_code == 401  # no file: what is not public


@pytest.mark.parametrize(
    "path",
    [
        "/link.txt", "/../secret.txt", "/%2e%2e/secret.txt", "/_app/../../secret.txt", "//etc/passwd", "/a%00b",
        "/" + "x" * 9000,
    ],
)  # fmt: skip
def test_nothing_else_is_a_file(server: Live, path: str) -> None:
    with raw_request(server, "GET", "/llm" + path) as client:
        answer = client.recv(4096)
    assert answer.split(b" ")[1] in (b"401", b"404")
    assert b"secret" not in answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/props", "/slots", "/metrics"])
def test_head(server: Live, path: str) -> None:
    head, get = (server.http.request(method, "/llm" + path) for method in ("HEAD", "GET"))
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0


def test_head_of_what_is_not_there(server: Live) -> None:
    assert server.http.head("/llm/no/such").status_code == 404
    assert server.http.head("/llm" + CHAT).status_code == 405


def test_switched_off_endpoints_say_so() -> None:
    settings = Settings(metrics_endpoint=False, slots_endpoint=False)
    with live(lambda _: Engine.over(FakeNative()), settings) as server:
        for path, flag in (("/metrics", "--no-metrics"), ("/slots", "--no-slots")):
            answer = server.http.get(path)
            assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_supported_error")
            assert flag in answer.json()["error"]["message"]
        assert server.http.get("/props").json()["endpoint_metrics"] is False


# ---- sockets ----


def test_several_addresses_and_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "llm.sock"
    settings = Settings(allowed_hosts=())
    with live(lambda _: Engine.over(FakeNative()), settings, hosts=("127.0.0.1", "127.0.0.2", str(path))) as server:
        port = server.url.rpartition(":")[2]
        assert httpx.get(f"http://127.0.0.2:{port}/health").status_code == 200
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://anything") as client:
            assert client.post(CHAT, json=BODY).json()["choices"][0]["message"]["content"] == "hello"
    assert not path.exists()


def test_urls(tmp_path: Path) -> None:
    path = tmp_path / "llm.sock"
    with bound(("127.0.0.1", str(path)), 0) as sockets:
        port = sockets[0].getsockname()[1]
        assert [url(sock, "https") for sock in sockets] == [f"https://127.0.0.1:{port}", f"unix://{path}"]


def test_clients_are_refused_until_a_socket_listens(tmp_path: Path) -> None:
    with bound(("127.0.0.1", str(tmp_path / "llm.sock")), 0) as sockets:
        for sock in sockets:
            with socket.socket(sock.family) as client:
                client.settimeout(PATIENCE)
                with pytest.raises(ConnectionRefusedError):
                    client.connect(sock.getsockname())
        listen(sockets)
        for sock in sockets:
            with socket.socket(sock.family) as client:
                client.connect(sock.getsockname())


def test_a_dead_servers_socket_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "llm.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with bound((str(path),), 0) as sockets:
        listen(sockets)
        with pytest.raises(DFlashError, match=r"cannot listen on .*choose another --host"), bound((str(path),), 0):
            pass
    path.write_text("not a socket")
    with pytest.raises(DFlashError, match="cannot listen"), bound((str(path),), 0):
        pass
    assert path.read_text() == "not a socket"


@pytest.mark.parametrize("closed", [False, True])
def test_a_successors_socket_is_left_alone(tmp_path: Path, closed: bool) -> None:
    """A server that drains has closed its socket, whose file's number may then be that of the next one's file."""
    path, probe = tmp_path / "llm.sock", tmp_path / "probe"

    def is_later() -> bool:
        probe.touch()
        return probe.stat().st_mtime_ns > path.stat().st_mtime_ns

    with ExitStack() as later:
        with bound((str(path),), 0) as (first,):
            if closed:
                first.close()
            wait_until(is_later)
            (second,) = later.enter_context(bound((str(path),), 0))
        assert path.is_socket()
        listen([second])
    assert not path.exists()


def test_an_address_that_another_server_took_meanwhile(tmp_path: Path) -> None:
    path = str(tmp_path / "llm.sock")
    with bound((path,), 0) as first, bound((path,), 0) as second:
        with pytest.raises(DFlashError, match=r"cannot listen on .*in use"):
            listen(first)
        listen(second)
    with (
        bound(("127.0.0.1",), 0) as first,
        pytest.raises(DFlashError, match=r"cannot listen on .*--port"),
        bound(("127.0.0.1",), first[0].getsockname()[1]) as second,  # some systems refuse this
    ):
        listen(second)
        listen(first)


def test_a_port_is_shared_on_demand() -> None:
    with bound(("127.0.0.1",), 0, reuse_port=True) as first:
        listen(first)
        port = first[0].getsockname()[1]
        with bound(("127.0.0.1",), port, reuse_port=True) as second:
            listen(second)
        with pytest.raises(DFlashError, match="cannot listen"), bound(("127.0.0.1",), port):
            pass


# ---- the log ----


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, logger="dflash_local.server.middleware.request_log"):
        yield caplog


def said(lines: pytest.LogCaptureFixture, start: str) -> logging.LogRecord:
    """The line about a request."""
    wait_until(lambda: any(line.getMessage().startswith(start) for line in lines.records))
    return next(line for line in lines.records if line.getMessage().startswith(start))


def test_one_line_for_each_request(server: Live, lines: pytest.LogCaptureFixture) -> None:
    for stream in (False, True):
        lines.clear()
        assert server.http.post("/llm" + CHAT, json={**BODY, "stream": stream}).status_code == 200
        line = said(lines, f"POST /llm{CHAT} 200 ")
        assert line.levelno == logging.INFO
        facts = line.getMessage().split(", ")
        assert facts[1:3] == ["prompt 24 (cached 0)", "generated 5"]
        assert facts[3].endswith(" tok/s")
        assert facts[4].startswith("AL ")
        assert "secret" not in line.getMessage()


def test_choices_and_refusals_are_told(server: Live, lines: pytest.LogCaptureFixture) -> None:
    server.http.post("/llm" + CHAT, json={**BODY, "n": 2})
    assert ", 2 choices, prompt 48 (cached 0), generated 10, " in said(lines, "POST").getMessage()
    lines.clear()
    server.http.post("/llm" + CHAT, json={**BODY, "n": 0})
    assert said(lines, "POST").getMessage().startswith(f"POST /llm{CHAT} 400 ")
    lines.clear()
    httpx.post(server.url + "/llm" + CHAT, json=BODY)
    assert said(lines, "POST").getMessage().startswith(f"POST /llm{CHAT} 401 ")


def test_what_is_asked_all_the_time_is_told_at_debug_level(server: Live, lines: pytest.LogCaptureFixture) -> None:
    server.http.get("/llm/health")
    assert said(lines, "GET /llm/health 200").levelno == logging.DEBUG


def test_a_client_that_leaves_is_told(lines: pytest.LogCaptureFixture) -> None:
    gate = threading.Semaphore(0)
    with live(lambda _: Engine.over(FakeNative(b"x" * 40, gate=gate))) as server:
        left = cancels(server)
        with raw_request(server, "POST", CHAT, {**BODY, "max_tokens": 40}):
            wait_until(lambda: server.engine.n_running == 1)
        assert left.wait(PATIENCE)
        gate.release()
        assert said(lines, f"POST {CHAT}").getMessage().endswith(", the client left")


@pytest.mark.parametrize("reasons", [(None, "cancelled"), ("cancelled", "cancelled"), (None, None), ("stop", None)])
def test_a_client_that_leaves_several_choices_is_told_once(reasons: tuple[Any, ...]) -> None:
    outcomes = [reason and Completion("", [], reason, 1, 0, Timings(), []) for reason in reasons]
    generations: Any = [SimpleNamespace(outcome=outcome) for outcome in outcomes]
    facts = [*_answers(generations)]
    assert facts.count("the client left") == 1 and facts[-1] == "the client left"
    assert ("2 choices" in facts) == any(reasons)


def test_a_path_cannot_forge_a_line(server: Live, lines: pytest.LogCaptureFixture) -> None:
    with raw_request(server, "GET", "/llm/%0aPOST%20/admin%201%1b[31m") as client:
        client.recv(4096)
    assert said(lines, "GET").getMessage().startswith("GET /llm/\\nPOST /admin 1\\x1b[31m 401 ")


def test_printable() -> None:
    assert printable("é\u2028\x00\r") == "é\\u2028\\x00\\r"
    assert printable("x" * 300) == "x" * 200 + "..."


def test_log_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    file = tmp_path / "serve.log"

    def level(*flags: str) -> tuple[int, int]:
        native = set_up_logs(parse(["serve", *flags])[1])
        return root.level, native

    try:
        assert level() == (logging.INFO, logging.WARNING)
        assert level("-lv", "0") == (logging.ERROR, logging.ERROR)
        assert level("-lv", "4") == (logging.DEBUG, logging.INFO)
        assert level("-v") == level("-lv", "9") == (logging.DEBUG, logging.DEBUG)
        level("--log-file", str(file), "--log-colors", "on", "--no-log-timestamps")
        logging.getLogger("x").warning("careful with %s", "b\udce8")  # a path that is no UTF-8
        assert file.read_text() == "WARNING careful with b\\udce8\n"  # colors are for terminals
        with pytest.raises(RequestError, match="cannot write the log"):
            level("--log-file", str(tmp_path / "no" / "folder"))
        level("--log-disable")
        logging.getLogger("x").error("nobody hears")
        assert file.read_text() == "WARNING careful with b\\udce8\n"
    finally:
        logging.disable(logging.NOTSET)
        for handler in {*root.handlers} - {*before[0]}:
            handler.close()
        root.handlers[:], root.level = before


def test_forms_of_lines() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "careful: %s", ("é",), None)
    args = parse(["serve", "--no-log-timestamps"])[1]
    assert Lines(args, colors=True).format(record) == "\x1b[35mWARNING careful: é\x1b[0m"
    args = parse(["serve", "--no-log-timestamps", "--no-log-prefix"])[1]
    assert Lines(args, colors=False).format(record) == "careful: é"
    told = json.loads(JsonLines().format(record))
    assert told == {"type": "log", "time": int(record.created * 1e6), "level": "warn", "msg": "careful: é"}
