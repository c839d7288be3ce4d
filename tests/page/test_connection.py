"""The chat page and its server: away for a while, back as another one, or without what is asked for."""

from __future__ import annotations

import time
from typing import Any

import pytest
from playwright.sync_api import expect

from dflash_local.server.recordings import recording
from dflash_local.server.routes import page as page_route
from dflash_local.server.settings import Settings
from tests.page.conftest import GONE, OpenTab, Served, Tab, serve
from tests.page.scripts import COUNT, KEPT
from tests.page.test_app import AWAY, another_build, banner, port_of
from tests.page.test_tabs import another
from tests.patience import wait_until

# The browser's own switch to offline does not end what is being sent.
CUT = """
  const fetchNow = fetch;
  window.fetch = async (url, ...more) => {
    const answer = await fetchNow(url, ...more);
    if (!String(url).startsWith("v1/")) return answer;
    const start = (stream) => (window.cut = () => stream.error(new TypeError("network error")));
    return new Response(answer.body.pipeThrough(new TransformStream({ start })), answer);
  };
"""


def send(tab: Tab, text: str) -> None:
    """Without a look at whether the server is there."""
    tab.page.fill("#message", text)
    tab.page.keyboard.press("Enter")


def begin_to_count(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")


def lose_connection(tab: Tab, seconds: int) -> None:
    """For so long by the page's clock."""
    tab.expected = ("ERR_INTERNET_DISCONNECTED",)
    tab.page.clock.install()
    tab.page.context.set_offline(True)
    tab.page.evaluate("cut()")
    for _ in range(seconds):
        tab.page.clock.run_for(1000)
    tab.sees("the connection is lost; trying again")


def test_a_question_that_meets_no_server_is_asked_of_the_next_one(open_tab: OpenTab) -> None:
    with serve(Settings(alias="first")) as served:
        tab = open_tab(served.url)
        tab.expected = (*GONE, "404")
        expect(tab.page.locator(".model")).to_have_text("first")
    send(tab, "count")
    tab.sees("waiting for the server")
    expect(banner(tab)).to_contain_text(AWAY)
    with serve(Settings(alias="second"), port=port_of(served)):
        assert tab.done() == COUNT
        expect(tab.page.locator(".model")).to_have_text("second")
        expect(banner(tab)).to_be_empty()


def test_an_open_page_asks_nothing_of_a_server_with_another_page(
    open_tab: OpenTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as served:
        tab = open_tab(served.url)
        tab.expected = (*GONE, "404")
        expect(tab.page.locator(".composer .send")).to_be_enabled()
    send(tab, "count")
    expect(banner(tab)).to_contain_text(AWAY)
    monkeypatch.setattr(page_route, "page_files", another_build)
    with serve(port=port_of(served)) as served:
        expect(banner(tab)).to_contain_text("another version of this page")
        expect(tab.answers().locator(".error")).to_contain_text("load it first")
        assert served.native.asked == []


def test_a_page_that_is_looked_at_again_learns_what_is_served_now(open_tab: OpenTab) -> None:
    with serve(Settings(alias="first")) as served:
        tab = open_tab(served.url)
        expect(tab.page.locator(".model")).to_have_text("first")
        tab.expected = GONE  # for what it still fetches
    with serve(Settings(alias="second"), port=port_of(served)):
        tab.page.clock.install(time=time.time() + 120)
        tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(tab.page.locator(".model")).to_have_text("second")


def test_a_refusal_that_will_pass_is_waited_for(tab: Tab) -> None:
    """As of a server that loads its model."""
    tab.expected = ("503",)
    refused: list[Any] = []

    def refuse_once(route: Any) -> None:
        if refused:
            route.continue_()
            return
        refused.append(route)
        error = {"error": {"message": "Loading model"}}
        route.fulfill(status=503, headers={"Retry-After": "1"}, json=error)

    tab.page.route("**/v1/chat/completions", refuse_once)
    tab.ask("hello")
    assert tab.done() == "You said: hello"
    assert refused


def test_a_question_that_is_always_lost_is_given_up(tab: Tab) -> None:
    """It may be what ends the server."""
    tab.expected = ("ERR_FAILED", "404")
    tab.page.clock.install()
    tab.page.route("**/v1/chat/completions", lambda route: route.abort())
    tab.ask("hello")
    error = tab.answers().locator(".error")

    def is_told() -> bool:
        tab.page.clock.run_for(1000)
        return bool(error.count())

    wait_until(is_told)
    expect(error).to_have_text("The server has lost this question: ask again.")
    assert len(tab.asked) == 3


def test_a_connection_may_be_lost_for_minutes(open_tab: OpenTab, served: Served) -> None:
    tab = open_tab(served.url, init=CUT)
    begin_to_count(tab, served)
    lose_connection(tab, 120)
    served.pace.free()
    tab.page.context.set_offline(False)
    assert tab.done() == COUNT


def test_stop_works_without_a_connection(open_tab: OpenTab, served: Served) -> None:
    tab = open_tab(served.url, init=CUT)
    begin_to_count(tab, served)
    lose_connection(tab, 3)
    tab.button("Stop").click()
    expect(tab.answers()).to_contain_text("Stopped.")
    expect(tab.button("Send")).to_be_visible()


def test_an_answer_of_which_only_the_end_is_kept_says_so(
    tab: Tab, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_BYTES", 2000)
    monkeypatch.setattr(recording, "BLOCK_BYTES", 500)
    tab.expected = ("400",)
    begin_to_count(tab, served)
    tab.page.goto("about:blank")
    served.pace.free()
    wait_until(lambda: not any(slot["is_processing"] for slot in served.live.engine.slots()))
    tab.page.goto(served.url)
    tab.sees("The server kept only the end of this answer: ask again.")
    expect(tab.answers()).to_have_class("turn answer stopped")


NO_CHANNEL = """
  window.BroadcastChannel = class {
    constructor() { throw new DOMException("The operation is insecure.", "SecurityError"); }
  };
"""


def test_a_browser_that_denies_tabs_a_channel_shows_the_page(open_tab: OpenTab, served: Served) -> None:
    """As Firefox where cookies are blocked."""
    tab = open_tab(served.url, init=NO_CHANNEL)
    tab.ask("hello")
    tab.done()
    tab.page.reload()
    assert tab.done() == "You said: hello"


def refuse_first(tab: Tab, path: str, error: dict[str, str] | None = None) -> list[Any]:
    """Refuse the next request with this error and 503, or cut it off; later ones pass. What was refused."""
    refused: list[Any] = []

    def answer(route: Any) -> None:
        if refused:
            route.continue_()
            return
        refused.append(route)
        if error is None:
            route.abort()
        else:
            route.fulfill(status=503, headers={"Retry-After": "1"}, json={"error": error})

    tab.page.route(path, answer)
    return refused


def test_a_look_that_fails_once_is_repeated(tab: Tab) -> None:
    tab.expected = ("ERR_FAILED",)
    expect(tab.page.locator(".composer .send")).to_be_enabled()
    refused = refuse_first(tab, "**/props")
    tab.page.clock.install(time=time.time() + 120)
    tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(banner(tab)).to_contain_text(AWAY)
    tab.page.clock.run_for(2000)
    tab.ask("hello")
    assert tab.done() == "You said: hello"
    expect(banner(tab)).to_be_empty()
    assert refused


@pytest.mark.parametrize(("code", "looks"), [("queue_full", 0), ("rpc_server_lost", 1)])
def test_a_busy_server_is_not_away(tab: Tab, code: str, looks: int) -> None:
    tab.expected = ("503",)
    expect(tab.page.locator(".composer .send")).to_be_enabled()
    refuse_first(tab, "**/v1/chat/completions", {"message": "Later", "code": code})
    before = len(tab.urls)
    tab.ask("hello")
    tab.done()
    assert sum(url.endswith("/health") for url in tab.urls[before:]) == looks


def test_all_that_came_before_a_stream_stalled_is_kept(tab: Tab, served: Served) -> None:
    begin_to_count(tab, served)
    wait_until(lambda: "1 2 3" in tab.page.evaluate(KEPT))


def test_another_tabs_answer_that_has_not_begun_is_waited_for(tab: Tab, served: Served) -> None:
    other = another(tab, served.url)
    other.expected = ("404",)
    held: list[Any] = []
    tab.page.route("**/v1/chat/completions", lambda route: held.append(route))
    tab.ask("count")
    other.page.locator(".conversations .title").click()
    expect(other.page.locator(".answer.running")).to_be_visible()
    other.page.fill("#message", "hello")
    expect(other.button("Stop")).to_be_visible()
    expect(other.button("Send")).to_have_count(0)
    other.page.keyboard.press("Enter")
    expect(other.page.locator(".question")).to_have_count(1)
    held[0].continue_()
    assert other.done() == COUNT
    expect(other.button("Send")).to_be_enabled()
    other.check()


def test_a_hidden_tab_catches_up_when_it_is_looked_at(tab: Tab, served: Served) -> None:
    other = another(tab, served.url)
    hide = "Object.defineProperty(document, 'hidden', { value: true, configurable: true })"
    other.page.evaluate(hide)
    tab.ask("hello")
    tab.done()
    tab.button("New chat").first.click()
    expect(other.page.locator(".conversations .title")).to_have_count(0)
    other.page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    other.page.locator(".conversations .title").click()
    assert other.done() == "You said: hello"
    other.check()
