"""The page's files over HTTP: who gets them."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

import httpx
import pytest

from dflash_local.engine import Engine
from dflash_local.server.page_file import page_files
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.server.live import Live, live


def test_files_need_no_key_and_are_below_the_prefix() -> None:
    settings = Settings(api_prefix="/llm", api_keys=("secret",))
    with live(lambda _: Engine.over(FakeNative()), settings) as server:
        assert httpx.get(server.url + "/llm/props").status_code == 401
        for name in page_files():
            assert httpx.get(f"{server.url}/llm/page/{name}").status_code == 200, name
        answer = httpx.get(server.url + "/llm")
        assert (answer.status_code, answer.headers["location"]) == (308, "llm/")
        assert httpx.get(server.url + "/llm", follow_redirects=True).text.startswith("<!doctype html>")


def test_without_a_page_there_are_no_files() -> None:
    with live(lambda _: Engine.over(FakeNative()), Settings(webui=False)) as server:
        for path in ("/", *(f"/page/{name}" for name in page_files())):
            answer = server.http.get(path)
            assert (answer.status_code, "--no-webui" in answer.text) == (404, True)


def test_every_file_that_the_index_names_is_there() -> None:
    index = page_files()["index.html"].body.decode()
    names = [part.split('"')[0] for part in index.split('="page/')[1:]]
    assert {"app.webmanifest", "icon.svg", "icon-180.png"} < set(names) <= set(page_files())
    for file in page_files().values():  # and those that scripts and styles name
        if file.name != "licenses.txt":
            assert set(re.findall(rb"[\w-]+-[0-9A-Z]{8}\.(?:js|css|woff2)", file.body)) <= {
                name.encode() for name in page_files()
            }


# ---- compression and caching ----


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(lambda _: Engine.over(FakeNative()), Settings()) as running:
        yield running


def get(server: Live, name: str, method: str = "GET", **headers: str) -> httpx.Response:
    """A file as a client gets it that asks for no compression."""
    sent = {"Accept-Encoding": "identity", **{key.replace("_", "-"): value for key, value in headers.items()}}
    return server.http.request(method, f"/page/{name}", headers=sent)


def raw(server: Live, path: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """An answer, and its body as it was sent."""
    with server.http.stream("GET", path, headers={"Accept-Encoding": "gzip", **headers}) as answer:
        return answer, b"".join(answer.iter_raw())


@pytest.mark.parametrize("name", page_files())
def test_a_files_headers(server: Live, name: str) -> None:
    file = page_files()[name]
    plain = get(server, name)
    assert plain.content == file.body and "content-encoding" not in plain.headers
    zipped, sent = raw(server, f"/page/{name}")
    if name.endswith((".woff2", ".png")):
        assert sent == file.body and "vary" not in plain.headers and "content-encoding" not in zipped.headers
    else:
        assert gzip.decompress(sent) == file.body  # compressed once, not twice
        assert zipped.headers["content-encoding"] == "gzip" and zipped.headers["etag"] != plain.headers["etag"]
        assert plain.headers["vary"] == zipped.headers["vary"] == "Accept-Encoding"
    lasts = bool(re.search(r"-[0-9A-Z]{8}\.", name))
    assert name.endswith((".js", ".css", ".woff2")) == lasts or name == "sw.js"
    for answer in (plain, zipped):
        assert answer.headers["cache-control"] == ("public, max-age=31536000, immutable" if lasts else "no-cache")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert ("service-worker-allowed" in answer.headers) == (name == "sw.js")


@pytest.mark.parametrize(
    ("accepted", "is_zipped"),
    [
        ("gzip", True), ("br, GZIP;q=0.5", True), ("*", True), ("identity, *;q=0.1", True), ("gzip ; q=1.0", True),
        ("", False), ("identity", False), ("br", False), ("gzip;q=0", False), ("gzip; q=0.000, *", False),
        ("*;q=0", False), ("xgzip", False),
    ],
)  # fmt: skip
def test_who_gets_it_compressed(server: Live, accepted: str, is_zipped: bool) -> None:
    headers = get(server, "licenses.txt", Accept_Encoding=accepted).headers
    assert headers.get("content-encoding") == ("gzip" if is_zipped else None)
    assert headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("name", ["index.html", "sw.js", "icon.svg", "icon-192.png", "KaTeX_Main-Regular"])
def test_conditional_requests(server: Live, name: str, encoding: str) -> None:
    name = next(file for file in page_files() if file.startswith(name))
    full = get(server, name, Accept_Encoding=encoding)
    tag = full.headers["etag"]
    for condition in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        answer = get(server, name, Accept_Encoding=encoding, If_None_Match=condition)
        assert (answer.status_code, answer.content) == (304, b"")
        for header in ("etag", "cache-control", "vary", "content-security-policy"):
            assert answer.headers.get(header) == full.headers.get(header)
    for condition in ('"x"', tag.strip('"'), ""):
        assert get(server, name, Accept_Encoding=encoding, If_None_Match=condition).status_code == 200


def test_the_other_form_is_not_what_the_client_has(server: Live) -> None:
    tag = get(server, "licenses.txt").headers["etag"]
    assert get(server, "licenses.txt", Accept_Encoding="gzip", If_None_Match=tag).status_code == 200


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_head_and_ranges(server: Live, encoding: str) -> None:
    full, sent = raw(server, "/page/licenses.txt", **{"Accept-Encoding": encoding})
    head = get(server, "licenses.txt", "HEAD", Accept_Encoding=encoding)
    assert (head.status_code, head.content) == (200, b"")
    assert {**head.headers, "date": ""} == {**full.headers, "date": ""}
    assert int(head.headers["content-length"]) == len(sent)
    part, whole = raw(server, "/page/licenses.txt", **{"Accept-Encoding": encoding, "Range": "bytes=0-9"})
    assert (part.status_code, whole, part.headers["accept-ranges"]) == (200, sent, "none")
    assert "content-range" not in part.headers


def test_a_file_is_compressed_once(server: Live) -> None:
    """What is kept is bounded: each file, and its compressed form, whatever clients ask for."""
    file = page_files()["licenses.txt"]
    raw(server, "/page/licenses.txt")
    kept = file.gzipped
    for accepted in ("gzip;q=0.1", "gzip, br", "*", "deflate, gzip"):
        raw(server, f"/page/licenses.txt?{accepted}", **{"Accept-Encoding": accepted})
    assert file.gzipped is kept and page_files()["licenses.txt"] is file
    assert sum(len(file.gzipped or b"") for file in page_files().values()) < 300_000


def test_answers_and_streams_stay_as_they_are(server: Live) -> None:
    chat = {"messages": [{"role": "user", "content": "x" * 2000}], "max_tokens": 9}
    for path in ("/v1/models", "/props", "/openapi.json", "/health"):
        assert "content-encoding" not in raw(server, path)[0].headers
    for stream in (False, True):
        answer = server.http.post("/v1/chat/completions", json={**chat, "stream": stream})
        assert answer.status_code == 200 and "content-encoding" not in answer.headers


def test_what_comes_before_the_first_paint_is_small() -> None:
    index = page_files()["index.html"].body.decode()
    named = re.findall(r'(?:href|src)="page/([^"]+\.(?:js|css))"', index)
    assert sum(len(page_files()[name].gzipped or b"") for name in named) < 60_000
