"""The page's files over HTTP: who gets them."""

from __future__ import annotations

import httpx

from dflash_local.engine import Engine
from dflash_local.server.routes.page import page_files
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.server.live import live


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
        for path in ("/", "/page/page.js"):
            answer = server.http.get(path)
            assert (answer.status_code, "--no-webui" in answer.text) == (404, True)


def test_every_file_that_the_index_names_is_there() -> None:
    index = page_files()["index.html"].body.decode()
    names = [part.split('"')[0] for part in index.split('="page/')[1:]]
    assert len(names) == 3 and set(names) <= set(page_files())
