"""Who may ask: keys, origins, host names. Over a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.server.security.api_keys import read_keys
from dflash_local.server.security.origins import Cors, parse_origins
from dflash_local.server.settings import Settings
from dflash_local.server_address import is_loopback
from tests.fake_native import FakeNative
from tests.server.live import Live, live

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
LOCAL = ("http://localhost", "http://localhost:8080", "https://127.0.0.1", "http://127.0.0.2:1", "http://[::1]:3000")
APPS = ("app://obsidian.md", "tauri://localhost", "vscode-webview://abc", "http://tauri.localhost")
FOREIGN = (
    "http://web.mydomain.fr",
    "http://notlocalhost",
    "http://localhost.evil.com",
    "null",
    "localhost",
    "http://[",
)


def serving(settings: Settings) -> Iterator[Live]:
    with live(lambda _: Engine.over(FakeNative()), settings) as server:
        yield server


@pytest.fixture(scope="module")
def closed() -> Iterator[Live]:
    yield from serving(Settings(api_keys=("secret", "other")))


@pytest.fixture(scope="module")
def local() -> Iterator[Live]:
    """As the command line serves by default."""
    yield from serving(Settings(cors=Cors(("localhost",)), allowed_hosts=("127.0.0.1", "llm.example.com")))


@pytest.fixture(scope="module")
def named() -> Iterator[Live]:
    yield from serving(Settings(cors=Cors(("https://a.example",), "GET, POST", "X-One", credentials=False)))


# ---- keys ----


def test_comments_of_a_key_file_are_no_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# team A\nsk-1\n\n  sk-2  \n#sk-3\nsk#4\n", encoding="utf-8")
    assert read_keys(None, file) == ("sk-1", "sk-2", "sk#4")
    assert read_keys("a, b", file) == ("a", "b", "sk-1", "sk-2", "sk#4")
    assert read_keys(None, None) == ()


def test_a_key_file_of_windows(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes("# team A\r\nsk-1\r\n".encode("utf-8-sig"))
    assert read_keys(None, file) == ("sk-1",)
    file.write_bytes("sk-1\r\n".encode("utf-8-sig"))
    assert read_keys(None, file) == ("sk-1",)


@pytest.mark.parametrize("text", ["", "\n \n", "# only a comment\n"])
def test_a_source_without_keys_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RequestError, match="has no key") as caught:
        read_keys("a", file)
    assert caught.value.param == "--api-key-file"
    with pytest.raises(RequestError, match=r"--api-key .* empty"):
        read_keys(text.replace("# only a comment", ","), None)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer secret"}, 200),
        ({"Authorization": "bearer other"}, 200),
        ({"Authorization": "BEARER  secret"}, 200),
        ({"Authorization": "secret"}, 200),  # as in llama-server
        ({"X-Api-Key": "other"}, 200),
        ({"Authorization": "Basic dXNlcjpwYXNz", "X-Api-Key": "secret"}, 200),  # a proxy's own
        ({"Authorization": "Bearer secret", "X-Api-Key": "wrong"}, 200),
        ({}, 401),
        ({"Authorization": "Basic secret"}, 401),
        ({"Authorization": "Bearer # team A"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer secret other"}, 401),
        ({"X-Api-Key": "Bearer secret"}, 401),
        ({"X-Api-Key": ""}, 401),
    ],
)
def test_headers(closed: Live, headers: dict[str, str], status: int) -> None:
    response = closed.http.post(CHAT, json=BODY, headers=headers)
    assert response.status_code == status
    if status == 401:
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")  # OpenAI's
        assert response.headers["www-authenticate"] == "Bearer"


def test_what_needs_no_key(closed: Live) -> None:
    for path in ("/", "/health", "/v1/health"):
        assert closed.http.get(path).status_code == 200
    for path in ("/props", "/slots", "/metrics", "/v1/models", "/no/such/path"):
        assert closed.http.get(path).status_code == 401
    assert closed.http.options(CHAT).status_code == 200  # browsers send no key with it


# ---- origins ----


def preflight(server: Live, origin: str, **headers: str) -> httpx.Response:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", **headers}
    return server.http.options("/completions", headers=asked)


@pytest.mark.parametrize("origin", [*LOCAL, *APPS])
def test_pages_of_this_machine_may_call(local: Live, origin: str) -> None:
    answer = preflight(local, origin, **{"Access-Control-Request-Headers": "authorization,content-type"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert answer.headers["vary"] == "Origin"
    response = local.http.post(CHAT, json=BODY, headers={"Origin": origin})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, origin)


@pytest.mark.parametrize("origin", FOREIGN)
def test_foreign_pages_may_not(local: Live, origin: str) -> None:
    answer = preflight(local, origin)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
    # What a page may send without a preflight: CORS alone would keep it only from reading the answer.
    simple = {"Origin": origin, "Content-Type": "text/plain"}
    before = local.engine.counters.requests
    response = local.http.post(CHAT, content=b'{"messages": [{"role": "user", "content": "hi"}]}', headers=simple)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "--cors-origins" in response.json()["error"]["message"]
    assert local.engine.counters.requests == before
    read = local.http.get("/props", headers={"Origin": origin})
    assert read.status_code == 200
    assert "access-control-allow-origin" not in read.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Referer": "https://evil.example/a//b"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Mode": "navigate"}, 200),  # a link
        ({"Referer": "http://localhost:3000/a"}, 200),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Origin": "vscode-webview://abc", "Sec-Fetch-Mode": "cors"}, 200),
        *(({"Sec-Fetch-Site": site}, 200) for site in ("same-origin", "same-site", "none")),
    ],
)
def test_pictures_of_foreign_pages(local: Live, headers: dict[str, str], status: int) -> None:
    """Nothing asks before those: what a browser tells of the page decides."""
    told = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", **headers}
    for answer in (local.http.get("/props", headers=told), local.http.head("/props", headers=told)):
        assert answer.status_code == status


def test_pictures_of_named_pages(named: Live, closed: Live) -> None:
    told = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert named.http.get("/props", headers={**told, "Referer": "https://a.example/"}).status_code == 200
    refused = named.http.get("/props", headers=told)
    assert refused.status_code == 403 and "pages of other sites" in refused.json()["error"]["message"]
    assert closed.http.get("/health", headers=told).status_code == 200  # a key opens it to all pages


def test_the_servers_own_page_may_call_under_every_name(named: Live) -> None:
    host = {"Host": "llm.lan:8080"}
    assert named.http.post(CHAT, json=BODY, headers={**host, "Origin": "http://llm.lan:8080"}).status_code == 200
    assert named.http.post(CHAT, json=BODY, headers={**host, "Origin": "http://llm.lan:81"}).status_code == 403


def test_named_origins(named: Live) -> None:
    answer = preflight(named, "https://a.example", **{"Access-Control-Request-Headers": "x-two"})
    assert answer.headers["access-control-allow-origin"] == "https://a.example"
    assert answer.headers["access-control-allow-methods"] == "GET, POST"
    assert answer.headers["access-control-allow-headers"] == "X-One"
    assert "access-control-allow-credentials" not in answer.headers
    assert "access-control-allow-origin" not in preflight(named, "https://b.example").headers


def test_with_a_key_every_page_may_call(closed: Live) -> None:
    for origin in ("https://a.example", "null"):
        assert preflight(closed, origin).headers["access-control-allow-origin"] == origin
        headers = {"Origin": origin, "Authorization": "Bearer secret"}
        assert closed.http.post(CHAT, json=BODY, headers=headers).status_code == 200


def test_every_origin_without_credentials_is_a_star() -> None:
    for server in serving(Settings(cors=Cors(credentials=False))):
        response = server.http.get("/health", headers={"Origin": "https://a.example"})
        assert response.headers["access-control-allow-origin"] == "*"


def test_a_private_network_is_opened_to_allowed_pages_only(local: Live) -> None:
    asked = {"Access-Control-Request-Private-Network": "true"}
    name = "access-control-allow-private-network"
    assert preflight(local, LOCAL[0], **asked).headers[name] == "true"
    assert name not in preflight(local, FOREIGN[0], **asked).headers


def test_errors_can_be_read_by_pages(closed: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = {"Origin": "https://a.example"}
    known = {**origin, "X-Api-Key": "secret"}

    def broken() -> None:
        raise RuntimeError("never foreseen")

    monkeypatch.setattr(closed.service, "health", broken)
    for response, status in (
        (closed.http.post(CHAT, json=BODY, headers=origin), 401),
        (closed.http.post(CHAT, json={**BODY, "n": 0}, headers=known), 400),
        (closed.http.get("/no/such/path", headers=known), 404),
        (closed.http.delete(CHAT, headers=known), 405),
        (closed.http.get("/health", headers=known), 500),
    ):
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == "https://a.example"
        assert "Retry-After" in response.headers["access-control-expose-headers"]
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_parse_origins() -> None:
    assert parse_origins("https://a.example/, localhost ,,*") == ("https://a.example", "localhost", "*")
    assert parse_origins("https://App.Example") == ("https://app.example",)  # as browsers send it


# ---- host names ----


@pytest.mark.parametrize(
    "host",
    [
        "localhost:8080", "LOCALHOST", "127.0.0.1", "[::1]:8080", "10.0.0.7:1", "llm.example.com",
        "LLM.example.com:443", "host.docker.internal:8080", "box.local", "box", "llm.localhost", "localhost.",
    ],
)  # fmt: skip
def test_names_of_this_machine(local: Live, host: str) -> None:
    assert local.http.get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.com", "evil.com:8080", "localhost.evil.com", "example.com", "127.0.0.1.evil.com"]
)
def test_a_name_that_somebody_else_points_here(local: Live, host: str) -> None:
    """DNS rebinding: for the browser such a page is of this origin."""
    headers = {"Host": host, "Origin": f"http://{host}"}
    for response in (local.http.get("/props", headers=headers), local.http.post(CHAT, json=BODY, headers=headers)):
        assert (response.status_code, response.json()["error"]["code"]) == (403, "host_not_allowed")
        assert "--allowed-hosts" in response.json()["error"]["message"]


def test_a_server_for_others_has_many_names(named: Live) -> None:
    assert named.http.get("/v1/models", headers={"Host": "llm.example.com"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("localhost", "LocalHost", "a.localhost", "127.9.9.9", "::1")),
        *((host, False) for host in ("0.0.0.0", "a", "")),
    ],
)
def test_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(("said", "status"), [("7", 200), ("x", 401), ("", 401), ("-1", 401), ("9" * 5000, 401)])
def test_the_number_of_a_routers_key(said: str, status: int) -> None:
    with live(lambda _: Engine.over(FakeNative()), Settings(behind_router=True)) as server:
        assert server.http.post(CHAT, json=BODY, headers={"X-Dflash-Key": said}).status_code == status
