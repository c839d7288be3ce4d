"""The chat page for who types on a phone, uses no mouse, hears the page, or writes from right to left."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import OpenTab, Served, Tab

PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


def press(button: Any) -> None:
    """Without a mouse."""
    button.focus()
    button.press("Enter")


def row(tab: Tab, title: str) -> Any:
    """What chooses a conversation."""
    return tab.page.locator(".conversations .title", has_text=title)


def press_in_row(tab: Tab, title: str, what: str) -> None:
    """A button that is there while its row has the focus."""
    row(tab, title).focus()
    press(tab.button(f"{what} {title}"))


# ---- the keyboard ----


@pytest.mark.parametrize(("key", "title"), [("Escape", "hello"), ("Enter", "fruit")])
def test_a_new_title_is_discarded_or_kept(tab: Tab, key: str, title: str) -> None:
    tab.ask("hello")
    tab.done()
    press_in_row(tab, "hello", "Rename")
    field = tab.page.get_by_label("Title", exact=True)
    expect(field).to_be_focused()
    field.fill("fruit")
    field.press(key)
    rows = tab.page.locator(".conversations .title")
    expect(rows).to_have_text([title])
    expect(rows).to_be_focused()
    tab.page.reload()
    expect(rows).to_have_text([title])


def test_escape_in_the_search_empties_it_and_stops_nothing(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    search = tab.page.locator("#search")
    search.fill("apples")
    search.press("Escape")
    expect(search).to_have_value("")
    search.press("Escape")
    expect(tab.button("Stop")).to_be_visible()


def test_the_focus_stays_with_the_branches(tab: Tab) -> None:
    tab.ask("one")
    for count in (1, 2):
        expect(tab.page.locator(".answer.done")).to_have_count(1)
        tab.button("Answer again").click()
        expect(tab.page.locator(".answer.done .branches")).to_contain_text(f"{count + 1} / {count + 1}")
    expect(tab.page.locator("#message")).to_be_focused()
    tab.button("Previous branch").focus()
    for shown, focused in (("2 / 3", "Previous branch"), ("1 / 3", "Next branch"), ("2 / 3", "Next branch")):
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator(".branches")).to_contain_text(shown)
        expect(tab.button(focused)).to_be_focused()


def test_the_focus_after_an_edit(tab: Tab) -> None:
    tab.ask("one")
    tab.done()
    press(tab.button("Edit question"))
    expect(tab.page.get_by_label("Edited question")).to_be_focused()
    tab.page.keyboard.press("Escape")
    expect(tab.button("Edit question")).to_be_focused()
    tab.page.keyboard.press("Enter")
    tab.page.get_by_label("Edited question").fill("two")
    tab.page.keyboard.press("Enter")
    tab.sees("You said: two")
    expect(tab.page.locator("#message")).to_be_focused()


def test_a_removal_by_keyboard_can_be_undone(tab: Tab) -> None:
    for text in ("pears", "apples"):
        tab.page.locator(".new-chat").click()
        tab.ask(text)
        tab.sees(f"You said: {text}")
    tab.page.clock.install()
    press_in_row(tab, "pears", "Remove")
    expect(row(tab, "apples")).to_be_focused()
    tab.page.clock.run_for(15_000)
    tab.button("Undo").focus()
    tab.page.clock.run_for(60_000)
    tab.page.keyboard.press("Enter")
    expect(row(tab, "pears")).to_have_count(1)
    expect(tab.page.locator("#message")).to_be_focused()
    press_in_row(tab, "pears", "Remove")
    expect(tab.button("Undo")).to_be_visible()
    tab.page.clock.run_for(21_000)
    expect(tab.button("Undo")).to_have_count(0)


def test_the_focus_stays_with_a_button_that_copies(open_tab: OpenTab, served: Served) -> None:
    """Over plain HTTP from another machine the browser has no clipboard for pages."""
    tab = open_tab(served.url, init="Object.defineProperty(navigator, 'clipboard', { value: undefined });")
    tab.ask("hello")
    tab.done()
    press(tab.button("Copy answer"))
    expect(tab.page.locator(".notice")).to_have_text("Copied.")
    expect(tab.button("Copy answer")).to_be_focused()


# ---- what is told ----


def test_the_begin_and_the_end_of_an_answer_are_told(tab: Tab, served: Served) -> None:
    told = tab.page.locator(".thread [role=status]")
    expect(told).to_be_empty()
    served.pace.hold()
    tab.ask("count")
    expect(told).to_have_text("The model is answering.")
    served.pace.free()
    expect(told).to_have_text("The answer is complete.")
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    expect(told).to_have_text("The model is answering.")
    tab.button("Stop").click()
    expect(told).to_have_text("Stopped.")
    tab.page.reload()
    expect(tab.page.locator(".answer")).to_have_count(2)
    expect(told).to_be_empty()


# ---- phones ----


def test_enter_is_a_new_line_on_a_phone(open_tab: OpenTab, served: Served) -> None:
    tab = open_tab(served.url, **PHONE)
    tab.page.locator("#message").press_sequentially("one\ntwo")
    expect(tab.page.locator("#message")).to_have_value("one\ntwo")
    tab.button("Send").click()
    tab.sees("You said: two")
    tab.button("Edit question").click()
    editor = tab.page.get_by_label("Edited question")
    editor.press("End")
    editor.press("Enter")
    editor.press_sequentially("three")
    tab.button("Ask again").click()
    tab.sees("You said: three")


# ---- other scripts ----


def test_right_to_left(tab: Tab) -> None:
    tab.page.fill("#message", "שלום")
    assert direction(tab, "#message") == "rtl"
    tab.ask("שלום")
    tab.done()
    for place in (
        ".bubble",
        ".answer p",
        ".answer ul",
        ".answer li",
        ".answer blockquote",
        ".answer table",
        ".head h1",
    ):
        assert direction(tab, place) == "rtl", place
    assert direction(tab, ".answer ul ~ p") == direction(tab, ".answer pre") == "ltr"
    assert direction(tab, ".conversations .title > span") == "rtl"
    press(tab.button("Edit question"))
    assert direction(tab, ".editor textarea") == "rtl"
    tab.page.reload()
    tab.done()
    assert direction(tab, ".answer ul") == "rtl"


def direction(tab: Tab, place: str) -> str:
    return str(tab.page.locator(place).first.evaluate("(element) => getComputedStyle(element).direction"))


@pytest.mark.parametrize(("text", "name"), [("???", "chat.md"), ("नमस्ते, दुनिया?", "नमस्ते दुनिया.md")])
def test_the_name_of_a_saved_chat(tab: Tab, text: str, name: str) -> None:
    tab.ask(text)
    tab.done()
    with tab.page.expect_download() as download:
        tab.button("Save this chat as Markdown").click()
    assert download.value.suggested_filename == name


def test_a_title_ends_with_a_whole_letter(tab: Tab) -> None:
    tab.ask("🙂" * 70)
    expect(tab.page.locator(".conversations .title")).to_have_text("🙂" * 59 + "…")
