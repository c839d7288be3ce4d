"""The chat page exports conversations and imports them, also what it did not write itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import OpenTab, Served, Tab


def exported(tab: Tab, file: Path) -> Path:
    with tab.page.expect_download() as download:
        tab.button("Export").click()
    download.value.save_as(file)
    return file


def written(file: Path, *conversations: dict[str, Any]) -> Path:
    """A file of another program."""
    told = {"format": "dflash-local conversations", "version": 1, "conversations": conversations}
    file.write_text(json.dumps(told), encoding="utf-8")
    return file


def turn(name: str, parent: str | None, created: int, **more: Any) -> dict[str, Any]:
    return {"id": name, "parent": parent, "created": created, "role": "user", "content": name, **more}


def says(tab: Tab, text: str) -> None:
    expect(tab.page.locator(".notice")).to_contain_text(text)


def questions(tab: Tab) -> Any:
    return tab.page.locator(".question .bubble")


def test_an_import_adds_to_the_conversations_that_are_here(tab: Tab, tmp_path: Path) -> None:
    tab.ask("one")
    tab.done()
    tab.page.locator(".new-chat").click()
    tab.ask("gone")
    tab.sees("You said: gone")
    file = exported(tab, tmp_path / "file.json")
    tab.page.locator(".conversations li").first.hover()
    tab.button("Remove gone").click()
    tab.page.locator(".conversations .title").click()
    tab.ask("two")
    tab.done(2)
    tab.imports(file)
    says(tab, "1 conversation is new, 1 was here.")
    expect(tab.page.locator(".conversations .title")).to_have_text(["one", "gone"])
    for _ in range(2):
        expect(questions(tab)).to_have_text(["one", "two"])
        expect(tab.answers().locator(".rate")).to_have_count(2)
        tab.page.reload()


def test_an_import_brings_the_turns_that_are_not_here(
    tab: Tab, open_tab: OpenTab, served: Served, tmp_path: Path
) -> None:
    other = open_tab(served.url)
    for count, text in enumerate(("one", "two"), 1):
        tab.ask(text)
        tab.done(count)
        other.imports(exported(tab, tmp_path / "file.json"))
        other.page.locator(".conversations .title").click()
        expect(questions(other)).to_have_count(count)
    says(other, "0 conversations are new, 1 was here.")
    other.page.reload()
    expect(questions(other)).to_have_text(["one", "two"])


def test_figures_are_in_the_file(tab: Tab, open_tab: OpenTab, served: Served, tmp_path: Path) -> None:
    tab.button("Settings").click()
    tab.page.locator("#set-max_tokens").fill("5")
    tab.button("Done").click()
    tab.ask("count")
    tab.done()
    file = exported(tab, tmp_path / "file.json")
    other = open_tab(served.url)
    other.imports(file)
    other.page.locator(".conversations .title").click()
    assert other.answers().locator(".figures").inner_text() == tab.answers().locator(".figures").inner_text()
    assert "tok/s" in other.answers().locator(".figures").inner_text()
    expect(other.answers()).to_contain_text("greatest length")


BAD_FIGURES: list[Any] = [None, "1", [1], {"predicted_n": 1}, {"acceptance_length": "<b>", "predicted_ms": None}]


@pytest.mark.parametrize("figures", BAD_FIGURES, ids=str)
def test_figures_that_are_none_are_left_out(tab: Tab, tmp_path: Path, figures: Any) -> None:
    given = turn("t", None, 1, role="assistant", timings=figures, drafting=figures)
    tab.imports(written(tmp_path / "file.json", {"id": "c", "title": "c", "leaf": "t", "turns": [given]}))
    tab.page.locator(".conversations .title").click()
    tab.sees("t")
    expect(tab.page.locator(".figures")).to_have_count(0)


NO_STRING = "Blob.prototype.text = () => Promise.reject(new Error('too long for a string'));"


def test_a_file_may_be_longer_than_any_string(open_tab: OpenTab, served: Served, tmp_path: Path) -> None:
    tab = open_tab(served.url)
    for text in ("one", "two\n}\n},\n]}"):
        tab.page.locator(".new-chat").click()
        tab.ask(text)
        tab.sees("You said: ")
        tab.done()
    file = exported(tab, tmp_path / "file.json")
    other = open_tab(served.url, init=NO_STRING)
    other.imports(file)
    says(other, "2 conversations are new.")
    expect(other.page.locator(".conversations .title")).to_have_text(["two", "one"])
    cut = file.read_text(encoding="utf-8")
    file.write_text(cut[: cut.rindex("}\n]}")], encoding="utf-8")
    third = open_tab(served.url, init=NO_STRING)
    third.imports(file)
    says(third, "file.json: the end of this file is missing. Before that: 1 conversation is new.")
    expect(third.page.locator(".conversations .title")).to_have_text(["two"])


def test_an_export_that_fails_is_told(open_tab: OpenTab, served: Served) -> None:
    tab = open_tab(served.url, init="URL.createObjectURL = () => { throw new Error('no room'); };")
    tab.button("Export").click()
    says(tab, "The conversations are not exported: no room")


def test_a_loop_of_turns_is_shown(tab: Tab, tmp_path: Path) -> None:
    turns = [turn("A", "A", 9), turn("B", "A", 1)]
    tab.imports(written(tmp_path / "file.json", {"id": "c", "title": "c", "leaf": "B", "turns": turns}))
    tab.page.locator(".conversations .title").click()
    branches = tab.page.locator(".question").last
    expect(branches).to_contain_text("1 / 2")
    branches.get_by_label("Next branch").click()
    expect(questions(tab)).to_have_text(["A"])
    branches.get_by_label("Previous branch").click()
    expect(questions(tab)).to_have_text(["A", "B"])


def test_a_conversation_without_an_end_shows_its_newest_turn(tab: Tab, tmp_path: Path) -> None:
    turns = [turn("A", None, 1), turn("B", "A", 2), turn("C", "A", 3)]
    tab.imports(written(tmp_path / "file.json", {"id": "c", "title": "c", "leaf": "X", "turns": turns}))
    tab.page.locator(".conversations .title").click()
    expect(questions(tab)).to_have_text(["A", "C"])


def test_an_import_changes_no_turn_of_another_conversation(tab: Tab, tmp_path: Path) -> None:
    tab.ask("mine")
    tab.done()
    (mine,) = json.loads(exported(tab, tmp_path / "file.json").read_text(encoding="utf-8"))["conversations"]
    names = [turn(given["id"], given["parent"], 1, content="theirs") for given in mine["turns"]]
    tab.imports(written(tmp_path / "file.json", {"id": "c", "title": "theirs", "leaf": None, "turns": names}))
    says(tab, "1 conversation is new.")
    tab.page.reload()
    expect(questions(tab)).to_have_text(["mine"])
    assert tab.done() == "You said: mine"
