"""A browser, a server with a scripted engine, and a tab on its page."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright import sync_api

from dflash_local.engine import Engine
from dflash_local.server.recordings.recorder import Recorder
from dflash_local.server.recordings.recordings import Recordings
from dflash_local.server.settings import Settings
from tests.page import answer_shapes
from tests.page.scripts import ChatNative, Pace
from tests.patience import PATIENCE
from tests.server.live import Live, live
from tests.toolchains import TOOLCHAINS

WAIT_MS = 1000 * PATIENCE
sync_api.expect.set_options(timeout=WAIT_MS)
BROWSER = TOOLCHAINS["browser"]


# Containers have little /dev/shm, where Chromium would keep what it draws.
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage")


def browser_path() -> str:
    """The system's Chromium; a test that needs it is skipped without one."""
    path = next(filter(None, map(shutil.which, BROWSER.programs[0])), None)
    if path is None:
        pytest.skip(f"no Chromium is installed. {BROWSER.hint}")
    return path


@pytest.fixture(scope="module")  # while it is there, this thread has an event loop, and asyncio.run() fails
def browser() -> Iterator[Any]:
    """The system's Chromium, without a window."""
    path = browser_path()
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=WAIT_MS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def installed(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the page's sources with what npm brings."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    copy = tmp_path_factory.mktemp("npm") / "page"
    ignore = shutil.ignore_patterns("dist", "node_modules")
    shutil.copytree(repo / "server" / "page", copy, ignore=ignore)
    (copy / answer_shapes.FILE).write_text(answer_shapes.text(), encoding="utf-8")
    done = subprocess.run(["npm", "ci"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy


@dataclass
class Served:
    """A server and its scripted engine."""

    live: Live
    native: ChatNative
    pace: Pace

    @property
    def url(self) -> str:
        return self.live.url

    @property
    def recordings(self) -> Recordings:
        """The streams that it keeps."""
        middleware: list[Any] = [*self.live.app.user_middleware]
        found: Recordings = next(one for one in middleware if one.cls is Recorder).kwargs["recordings"]
        return found


@contextmanager
def serve(settings: Settings | None = None, *, port: int = 0, **more: Any) -> Iterator[Served]:
    pace = Pace()
    native = ChatNative(pace, **more)
    with live(lambda _: Engine.over(native), settings or Settings(alias="Qwen3-8B-Q4_K_M"), port=port) as running:
        yield Served(running, native, pace)
        pace.free()


@pytest.fixture(scope="session")
def shared() -> Iterator[Served]:
    with serve() as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    yield shared
    shared.pace.free()
    shared.native.asked.clear()
    shared.native.cancelled.clear()


@dataclass
class Tab:
    """A page of the browser with a storage of its own. What its console says is an error unless a test expects it.

    Attributes:
        urls: addresses that it asked for.
        asked: bodies of its chat requests.
    """

    page: Any
    errors: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    urls: list[str] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def watch(self) -> None:
        def on_console(message: Any) -> None:
            if message.type in ("error", "warning"):
                self.errors.append(message.text)

        self.page.on("console", on_console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._on_request)
        self.page.set_default_timeout(WAIT_MS)

    def _on_request(self, request: Any) -> None:
        self.urls.append(request.url)
        if request.url.endswith("/v1/chat/completions"):
            self.asked.append(request.post_data_json)

    def ask(self, text: str) -> None:
        # Before it knows the server the page sends nothing.
        sync_api.expect(self.page.locator(".composer .send")).to_be_enabled()
        self.page.fill("#message", text)
        self.page.keyboard.press("Control+Enter")  # on a phone Enter alone is a new line

    def imports(self, file: Path) -> None:
        # Before it has read what it keeps, what is imported would be lost.
        sync_api.expect(self.button("Import")).to_be_enabled()
        self.page.set_input_files("input[accept='.json']", file)

    def answers(self) -> Any:
        return self.page.locator(".answer")

    def done(self, count: int = 1) -> str:
        """Wait until so many answers are complete; the last one's text."""
        found = self.page.locator(".answer:not(.running)")
        sync_api.expect(found).to_have_count(count, timeout=WAIT_MS)
        text = found.last.locator(".markdown").last
        # A short answer is complete before what draws it is here.
        sync_api.expect(text).not_to_be_empty(timeout=WAIT_MS)
        return str(text.inner_text())

    def sees(self, text: str) -> None:
        sync_api.expect(self.answers().last).to_contain_text(text, timeout=WAIT_MS)

    def button(self, label: str) -> Any:
        return self.page.get_by_role("button", name=label, exact=True)

    def check(self) -> None:
        unexpected = [error for error in self.errors if not any(text in error for text in (*self.expected, BLOCKED))]
        assert unexpected == []


# What the console says of a server that has ended.
GONE = ("ERR_CONNECTION_REFUSED", "ERR_FAILED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
BLOCKED = "Service Worker registration blocked by Playwright"  # as DESKTOP says
DESKTOP: dict[str, Any] = {"viewport": {"width": 1200, "height": 820}, "service_workers": "block"}
OpenTab = Callable[..., Tab]


@pytest.fixture
def open_tab(browser: Any) -> Iterator[OpenTab]:
    """Opens tabs with `options` of Playwright's contexts; each must be without errors at the end. Without a service
    worker, unless a test is about it."""
    with ExitStack() as contexts:
        tabs: list[Tab] = []

        def opened(url: str, init: str = "", **options: Any) -> Tab:
            context = browser.new_context(**{**DESKTOP, **options})
            contexts.callback(context.close)
            tab = Tab(context.new_page())
            tab.watch()
            if init:
                tab.page.add_init_script(init)
            tab.page.goto(url)
            sync_api.expect(tab.page.locator(".thread")).to_be_visible(timeout=WAIT_MS)
            tabs.append(tab)
            return tab

        yield opened
        for tab in tabs:
            tab.check()


def faults(page: Any) -> list[str]:
    """What axe finds wrong with a page for people who see or move otherwise."""
    found = Axe().run(page).response["violations"]
    return [f"{fault['id']}: {node['html'][:160]}" for fault in found for node in fault["nodes"]]


@pytest.fixture
def tab(open_tab: OpenTab, served: Served) -> Tab:
    return open_tab(served.url)
