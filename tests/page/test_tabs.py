"""The chat page in several tabs of one browser, which share what it keeps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import OpenTab, Served, Tab
from tests.page.scripts import COUNT, KEPT
from tests.patience import wait_until

# A tab that hears nothing, as one that the browser froze.
DEAF = "Object.defineProperty(BroadcastChannel.prototype, 'onmessage', { set() {} });"


def another(tab: Tab, url: str, *, init: str = "") -> Tab:
    """A second tab of the same browser."""
    other = Tab(tab.page.context.new_page())
    other.watch()
    if init:
        other.page.add_init_script(init)
    other.page.goto(url)
    expect(other.page.locator(".thread")).to_be_visible()
    return other


def count_to_three(tab: Tab, served: Served) -> None:
    """Ask for the long answer, of which only the beginning comes."""
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")


def rename(tab: Tab, title: str, new: str) -> None:
    tab.page.locator(".conversations li").first.hover()
    tab.button(f"Rename {title}").click()
    tab.page.get_by_label("Title").fill(new)
    tab.page.keyboard.press("Enter")


def heading(tab: Tab) -> Any:
    return tab.page.locator(".head h1")


# ---- answers ----


def test_stop_in_one_tab_stops_the_answer_in_the_other(tab: Tab, served: Served) -> None:
    count_to_three(tab, served)
    other = another(tab, served.url)
    other.sees("1 2 3")
    tab.button("Stop").click()
    for one in (tab, other):
        expect(one.answers()).to_contain_text("Stopped.")
    tab.page.reload()
    expect(tab.answers()).to_contain_text("Stopped.")
    expect(tab.page.locator(".error")).to_have_count(0)
    other.check()


def test_an_answer_that_has_not_begun_is_stopped_in_another_tab(tab: Tab, served: Served) -> None:
    tab.ask("one")
    tab.done()
    other = another(tab, served.url)
    other.done()
    tab.page.route("**/v1/chat/completions", lambda _: None)  # it stays on its way
    tab.ask("count")
    expect(tab.button("Stop")).to_be_visible()
    other.button("Stop").click()
    for one in (tab, other):
        expect(one.answers().last).to_contain_text("Stopped.")
        expect(one.button("Send")).to_be_enabled()
    tab.page.unroute("**/v1/chat/completions")
    for one in (tab, other):
        one.page.reload()
        expect(one.answers().last).to_contain_text("Stopped.")
        expect(one.page.locator(".error")).to_have_count(0)
    other.check()


def test_a_tab_that_was_cut_off_keeps_the_answer_of_another(tab: Tab, served: Served) -> None:
    count_to_three(tab, served)
    other = another(tab, served.url)
    other.expected = ("ERR_FAILED", "404")
    other.sees("1 2 3")
    wait_until(lambda: "1 2 3" in str(other.page.evaluate(KEPT)))
    other.page.route("**/v1/stream*", lambda route: route.abort())
    other.page.reload()
    other.sees("1 2 3")
    served.pace.free()
    assert tab.done() == COUNT
    served.recordings._kept.clear()
    other.page.unroute("**/v1/stream*")
    expect(other.answers()).to_have_class("turn answer done")
    assert other.done() == COUNT
    for one in (tab, other):
        one.page.reload()
        assert one.done() == COUNT
    other.check()


def test_an_answer_is_read_along_in_another_tab(tab: Tab, served: Served) -> None:
    other = another(tab, served.url)
    count_to_three(tab, served)
    other.page.locator(".conversations .title").click()
    other.sees("1 2 3")
    tab.page.close()
    served.pace.free()
    assert other.done() == COUNT
    other.check()


def test_a_conversation_goes_on_in_another_tab(tab: Tab, served: Served) -> None:
    tab.ask("one")
    tab.done()
    other = another(tab, served.url)
    other.done()
    tab.ask("two")
    tab.done(2)
    other.done(2)
    other.ask("three")
    other.done(3)
    asked = [message["content"] for message in other.asked[-1]["messages"] if message["role"] == "user"]
    assert asked == ["one", "two", "three"]
    tab.done(3)
    other.check()


def test_questions_of_two_tabs_at_once_are_branches(open_tab: OpenTab, served: Served) -> None:
    tab = open_tab(served.url, init=DEAF)  # neither hears of the other in time
    tab.ask("one")
    tab.done()
    other = another(tab, served.url, init=DEAF)
    other.done()
    for one, text in ((tab, "left"), (other, "right")):
        one.ask(text)
    for one, text in ((tab, "left"), (other, "right")):
        one.sees(f"You said: {text}")
        one.done(2)
    for one in (tab, other):
        one.page.reload()
        expect(one.page.locator(".question .branches")).to_contain_text(re.compile(r"\d / 2"))
    other.check()


# ---- conversations ----


@pytest.mark.parametrize("init", ["", DEAF], ids=["hearing", "deaf"])
def test_a_new_title_in_one_tab_hides_no_turn_of_another(tab: Tab, served: Served, init: str) -> None:
    tab.ask("one")
    tab.done()
    other = another(tab, served.url, init=init)
    other.done()
    tab.ask("two")
    tab.done(2)
    rename(other, "one", "numbers")
    if not init:
        expect(heading(tab)).to_have_text("numbers")
    expect(heading(other)).to_have_text("numbers")
    for one in (tab, other):
        one.page.reload()
        expect(heading(one)).to_have_text("numbers")
        expect(one.page.locator(".question .bubble")).to_have_text(["one", "two"])
    other.check()


@pytest.mark.parametrize("init", ["", DEAF], ids=["hearing", "deaf"])
def test_a_question_in_one_tab_keeps_the_title_of_another(tab: Tab, served: Served, init: str) -> None:
    tab.ask("one")
    tab.done()
    other = another(tab, served.url, init=init)
    other.done()
    rename(tab, "one", "numbers")
    expect(heading(tab)).to_have_text("numbers")
    other.ask("two")
    other.done(2)
    for one in (tab, other):
        one.page.reload()
        expect(heading(one)).to_have_text("numbers")
        expect(one.page.locator(".question")).to_have_count(2)
    other.check()


def test_a_removal_ends_the_answer_in_another_tab(tab: Tab, served: Served) -> None:
    served.recordings._kept.clear()
    other = another(tab, served.url)
    count_to_three(other, served)
    tab.page.locator(".conversations li").hover()
    tab.button("Remove count").click()
    expect(other.page.locator(".welcome h1")).to_be_visible()
    wait_until(lambda: not served.recordings._kept)
    served.pace.free()
    wait_until(lambda: bool(served.native.cancelled))
    for one in (tab, other):
        expect(one.page.locator(".conversations li")).to_have_count(0)
    tab.button("Undo").click()
    for one in (tab, other):
        one.page.locator(".conversations .title").click()
        expect(one.answers()).to_contain_text("Stopped.")
        one.page.reload()
        expect(one.answers()).to_contain_text("Stopped.")
    other.check()


def test_each_tab_shows_its_own_conversation_after_a_reload(tab: Tab, served: Served) -> None:
    for text in ("apples", "pears"):
        tab.button("New chat").first.click()
        tab.ask(text)
        tab.sees(f"You said: {text}")
    other = another(tab, served.url)
    expect(heading(other)).to_have_text("pears")
    tab.page.locator(".conversations .title", has_text="apples").click()
    other.page.locator(".conversations .title", has_text="pears").click()
    third = another(tab, served.url)
    third.button("New chat").first.click()
    other.page.locator(".conversations .title", has_text="pears").click()
    for one, title in ((tab, "apples"), (other, "pears")):
        one.page.reload()
        expect(heading(one)).to_have_text(title)
    third.page.reload()
    expect(third.page.locator(".welcome h1")).to_be_visible()


def test_settings_of_two_tabs_are_both_kept(tab: Tab, served: Served) -> None:
    other = another(tab, served.url)
    for one, name, value in ((tab, "temperature", "0.3"), (other, "top_p", "0.5")):
        one.button("Settings").click()
        one.page.locator(f"#set-{name}").fill(value)
        one.button("Done").click()
    other.ask("hello")
    other.done()
    assert {"temperature": 0.3, "top_p": 0.5}.items() <= other.asked[-1].items()


# ---- what the browser may throw away ----


def test_the_browser_is_asked_to_keep_conversations(open_tab: OpenTab, served: Served) -> None:
    init = """window.asked = 0;
      StorageManager.prototype.persist = () => Promise.resolve(++window.asked > 0);"""
    tab = open_tab(served.url, init=init)
    assert tab.page.evaluate("window.asked") == 0
    for count in (1, 2):
        tab.ask("hello")
        tab.done(count)
        assert tab.page.evaluate("window.asked") == 1
