"""The page as an app: its manifest, its first paint, and what its service worker keeps, and what not."""

from __future__ import annotations

import json
import statistics
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from dflash_local.server.page_file import PageFile, page_files
from dflash_local.server.routes import page as page_route
from dflash_local.server.settings import Settings
from tests.page.conftest import FLAGS, GONE, WAIT_MS, OpenTab, Served, Tab, browser_path, faults, serve
from tests.page.first_paint import first_paint
from tests.page.icons import SIZES
from tests.page.scripts import COUNT
from tests.patience import PATIENCE, wait_until

AWAY = "The server is away."
KEPT = """async () => {
  const names = await caches.keys();
  const lists = names.map(async (name) => [name, (await (await caches.open(name)).keys()).map(({ url }) => url)]);
  return Object.fromEntries(await Promise.all(lists));
}"""


@pytest.fixture
def open_app(open_tab: OpenTab) -> OpenTab:
    """Opens tabs whose service worker is there."""

    def opened(url: str, **options: Any) -> Tab:
        tab = open_tab(url, service_workers="allow", **options)
        tab.expected = GONE
        is_active(tab)
        return tab

    return opened


def is_active(tab: Tab) -> None:
    states = "navigator.serviceWorker.getRegistrations().then((all) => all.map(({ active }) => active?.state))"
    wait_until(lambda: tab.page.evaluate(states) == ["activated"])


def kept(tab: Tab) -> dict[str, list[str]]:
    """The caches of the tab's origin: addresses by name."""
    return dict(tab.page.evaluate(KEPT))


def port_of(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


def build_of(tab: Tab) -> str:
    return str(tab.page.locator('meta[name="build"]').get_attribute("content"))


def banner(tab: Tab) -> Any:
    return tab.page.locator(".absence")


def another_build() -> Mapping[str, PageFile]:
    """As if the style sheet had changed: it has another name, which the page and the service worker know."""
    files = dict(page_files())
    old = next(name for name in files if name.endswith(".css"))
    new, build = "page-AAAAAAAA.css", "0123456789abcdef"
    body = files.pop(old).body + b"body{--is-new:1}"
    files[new] = PageFile(new, body, "a" * 64)
    index = files["index.html"].body.decode()
    own = index.split('name="build" content="')[1].split('"')[0]
    for name in ("index.html", "sw.js"):
        text = files[name].body.decode()
        assert old in text and own in text
        files[name] = PageFile(name, text.replace(old, new).replace(own, build).encode(), name[0] * 64)
    return files


# ---- installation ----


def test_the_manifest_and_its_icons() -> None:
    files = page_files()
    manifest = json.loads(files["app.webmanifest"].body)
    assert {manifest[name] for name in ("start_url", "scope")} == {"../"}
    pictures = {icon["src"]: icon["sizes"] for icon in manifest["icons"]}
    assert set(pictures) <= set(files) and "icon-180.png" in files
    for name, size in SIZES.items():
        assert struct.unpack(">II", files[name].body[16:24]) == (size, size)
        assert pictures.get(name, f"{size}x{size}") == f"{size}x{size}"
    assert [icon["src"] for icon in manifest["icons"] if icon.get("purpose") == "maskable"] == ["icon-maskable.png"]


def test_it_can_be_installed(browser: Any, tmp_path: Path) -> None:
    """By Chromium's own check, below a prefix. Private windows install nothing, so this one has a profile."""
    launch = browser.browser_type.launch_persistent_context
    with (
        serve(Settings(api_prefix="/llm", api_keys=("secret",))) as served,
        launch(tmp_path, executable_path=browser_path(), args=FLAGS, timeout=WAIT_MS) as context,
    ):
        page = context.new_page()
        page.goto(served.url + "/llm/")
        page.locator("#message").wait_for(timeout=WAIT_MS)
        devtools = context.new_cdp_session(page)
        told = devtools.send("Page.getAppManifest")
        assert told["errors"] == [] and told["url"] == served.url + "/llm/page/app.webmanifest"
        assert told["manifest"]["startUrl"] == told["manifest"]["scope"] == served.url + "/llm/"
        assert devtools.send("Page.getInstallabilityErrors")["installabilityErrors"] == []


# ---- without its server ----


@pytest.mark.parametrize("prefix", ["", "/llm"])
def test_it_opens_while_the_server_is_away(open_app: OpenTab, prefix: str) -> None:
    settings = Settings(api_prefix=prefix)
    with serve(settings) as served:
        port = port_of(served)
        tab = open_app(f"{served.url}{prefix}/")
        tab.ask("count")
        assert tab.done() == COUNT
        assert banner(tab).inner_text() == ""
    tab.page.reload()
    expect(banner(tab)).to_contain_text(AWAY)
    expect(banner(tab)).to_have_role("status")
    expect(tab.page.locator(".model")).to_have_text("away")
    tab.sees("99 100")  # drawn as Markdown: all parts are kept, and come after the first paint
    assert tab.done() == COUNT
    expect(tab.page.locator(".composer .send")).to_be_disabled()
    tab.page.fill("#message", "count")  # it may be written already
    assert faults(tab.page) == []
    tab.button("Settings").click()
    expect(tab.page.locator("dialog .error")).to_be_visible()
    tab.button("Done").click()
    with serve(settings, port=port):
        expect(banner(tab)).to_be_empty()
        tab.button("Settings").click()
        expect(tab.page.locator("#set-top_k")).to_have_count(1)  # what could not be asked then is asked now
        tab.button("Done").click()
        tab.page.focus("#message")
        tab.page.keyboard.press("Enter")
        assert tab.done(2) == COUNT


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_says_so_can_be_seen(open_app: OpenTab, scheme: str) -> None:
    with serve() as served:
        tab = open_app(served.url, color_scheme=scheme)
    tab.page.reload()
    expect(banner(tab)).to_contain_text(AWAY)
    for size in ({"width": 1200, "height": 820}, {"width": 360, "height": 740}):
        tab.page.set_viewport_size(size)
        assert faults(tab.page) == []


class Proxy(BaseHTTPRequestHandler):
    """Cuts off /ai, as nginx does for a location, and answers 502 if its server is away."""

    target = ""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = self.target + self.path.removeprefix("/ai")
        sent = [(name, value) for name, value in self.headers.items() if name.lower() != "connection"]
        try:
            with httpx.stream(self.command, address, headers=sent, content=body, timeout=PATIENCE) as answer:
                self.send_response(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.end_headers()
                for chunk in answer.iter_raw():
                    self.wfile.write(chunk)
        except httpx.ConnectError:
            self.send_error(502)

    do_POST = do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def proxied() -> Iterator[str]:
    """The proxy's URL. Its thread must end with it: it waits for a descriptor, which the next socket would get."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        thread = Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}/ai/"
        finally:
            proxy.shutdown()
            thread.join()


def test_behind_a_proxy_whose_server_is_away(open_app: OpenTab) -> None:
    with proxied() as url:
        with serve() as served:
            Proxy.target = served.url
            tab = open_app(url)
            tab.ask("count")
            assert tab.done() == COUNT
        tab.expected = (*GONE, "502")
        tab.page.reload()
        expect(banner(tab)).to_contain_text(AWAY)
        assert tab.done() == COUNT


# ---- another build ----


def test_a_new_build_is_shown_at_once(open_app: OpenTab, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve() as served:
        tab = open_app(served.url)
        (before,) = kept(tab)
        monkeypatch.setattr(page_route, "page_files", another_build)
        tab.page.reload()
        assert tab.page.evaluate("getComputedStyle(document.body).getPropertyValue('--is-new')") == "1"
        assert build_of(tab) not in before
        wait_until(lambda: [build_of(tab) in name for name in kept(tab)] == [True])
    tab.page.reload()
    expect(banner(tab)).to_contain_text(AWAY)
    assert tab.page.evaluate("getComputedStyle(document.body).getPropertyValue('--is-new')") == "1"


def test_a_kept_page_asks_nothing_of_a_newer_server(open_app: OpenTab, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve() as served:
        port = port_of(served)
        tab = open_app(served.url)
    tab.page.reload()
    expect(banner(tab)).to_contain_text(AWAY)
    old = build_of(tab)
    monkeypatch.setattr(page_route, "page_files", another_build)
    with serve(port=port) as served:
        expect(banner(tab)).to_contain_text("another version of this page")
        tab.page.fill("#message", "count")
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator(".composer .send")).to_be_disabled()
        assert served.native.asked == [] and tab.answers().count() == 0
        tab.button("Settings").click()
        expect(tab.page.locator("dialog")).to_contain_text("load it first")
        tab.page.keyboard.press("Escape")
        assert faults(tab.page) == []
        tab.button("Load it").click()
        expect(tab.page.locator(".composer .send")).to_be_enabled()
        assert build_of(tab) != old
        tab.ask("count")
        assert tab.done() == COUNT


# ---- what is kept ----


def test_only_the_builds_files_are_kept(open_app: OpenTab) -> None:
    """No answers, no other requests, no keys."""
    with serve(Settings(api_keys=("a-secret-key",))) as served:
        tab = open_app(served.url)
        tab.expected = ("401",)
        tab.page.get_by_role("textbox", name="API key").fill("a-secret-key")
        tab.button("Use this key").click()
        tab.page.reload()  # now the service worker sees the page's requests
        tab.ask("show all")
        tab.done()
        tab.page.evaluate("document.fonts.ready.then(() => undefined)")
        (addresses,) = kept(tab).values()
        files = {f"{served.url}/page/{name}" for name in page_files()}
        assert set(addresses) - {served.url + "/"} <= files
        assert any(".woff2" in address for address in addresses)  # formulas need them
        assert not any("sw.js" in address or "licenses" in address for address in addresses)
        assert "a-secret-key" not in json.dumps(tab.page.evaluate(HEADS))


HEADS = """async () => {
  const cache = await caches.open((await caches.keys())[0]);
  const pairs = await Promise.all((await cache.keys()).map(async (request) => [request, await cache.match(request)]));
  return pairs.map(([request, answer]) => [...request.headers, ...answer.headers]);
}"""


def test_it_goes_when_the_page_is_gone(open_app: OpenTab) -> None:
    with serve() as served:
        port = port_of(served)
        tab = open_app(served.url)
    with serve(Settings(webui=False), port=port) as served:
        tab.expected = (*GONE, "404")
        answer = tab.page.goto(served.url)
        assert answer.status == 404 and "--no-webui" in answer.text()
        registered = "navigator.serviceWorker.getRegistrations().then((all) => all.length)"
        wait_until(lambda: tab.page.evaluate(registered) == 0 and not kept(tab))


# ---- the first paint ----


def test_the_first_paint_waits_for_little(served: Served, browser: Any) -> None:
    """The page is there while what draws answers is not; without it answers are plain text."""
    page = browser.new_context(service_workers="block").new_page()
    held: list[Any] = []

    def is_held() -> bool:
        page.title()  # meanwhile the route's handler runs
        return bool(held)

    page.route("**/page/rest-*.js", lambda route: held.append(route))
    page.goto(served.url, wait_until="commit")
    expect(page.locator(".welcome h1")).to_have_text("Qwen3-8B-Q4_K_M")
    page.fill("#message", "show all")
    page.keyboard.press("Enter")
    expect(page.locator(".answer.done")).to_have_count(1)
    expect(page.locator(".answer .markdown")).to_be_empty()
    wait_until(is_held)
    held[0].abort()
    expect(page.locator(".answer .markdown")).to_contain_text("## A short tour")
    page.context.close()


@pytest.mark.slow
@pytest.mark.timing
def test_the_first_paint_is_soon(browser: Any, served: Served) -> None:
    """150 to 250 ms were measured on a busy machine of two cores (docs/page.md)."""
    paints = []
    for _ in range(10):
        with browser.new_context(service_workers="block") as context:
            paints.append(first_paint(context.new_page(), served.url))
    assert statistics.median(paint.ms for paint in paints) < 300
    assert paints[-1].bytes < 320_000 and paints[-1].bytes_before < 70_000
