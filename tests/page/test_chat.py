"""The chat page in a browser: what one can do with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dflash_local.sampling import SamplingParams
from dflash_local.server.settings import Settings
from tests.page.conftest import OpenTab, Served, Tab, faults, serve
from tests.page.scripts import COUNT, KEPT, RICH, TRICKY
from tests.patience import wait_until
from tests.server.test_router import model, routing

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def copied(tab: Tab) -> str:
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    return str(tab.page.evaluate("navigator.clipboard.readText()"))


# ---- what an answer looks like ----


def test_markdown_tables_code_and_formulas(tab: Tab, served: Served) -> None:
    tab.ask("show all")
    tab.done()
    answer = tab.answers()
    expect(answer.locator("h2")).to_have_text("A short tour")
    expect(answer.locator("table tr")).to_have_count(4)
    expect(answer.locator("td.right").first).to_have_css("text-align", "right")
    expect(answer.locator("ol li")).to_have_count(3)
    expect(answer.locator(".katex-display .mfrac")).to_have_count(1)
    expect(answer.locator(".code .hljs-keyword").first).to_have_text("def")
    expect(answer.locator("a")).to_have_attribute("rel", "noopener noreferrer")
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    answer.locator(".code").get_by_role("button", name="Copy").click()
    assert copied(tab) == RICH.split("```")[1].removeprefix("python\n").rstrip("\n")
    tab.button("Copy answer").click()
    assert copied(tab) == RICH


def test_everything_comes_from_this_server(tab: Tab, served: Served) -> None:
    tab.ask("show all")
    tab.done()
    assert [url for url in tab.urls if not url.startswith((served.url, "blob:"))] == []
    assert any(url.endswith(".woff2") for url in tab.urls)


def test_html_and_scripts_in_an_answer_stay_text(tab: Tab) -> None:
    tab.ask("be evil")
    tab.done()
    assert tab.page.evaluate("window.hacked") is None
    assert tab.answers().locator("img, script, [onerror], a[href^=javascript], a[href^=data]").count() == 0
    expect(tab.answers().locator("p").first).to_contain_text("<img src=x onerror=")
    expect(tab.answers().locator("a")).to_have_attribute("href", "https://example.org/c.png")


def test_the_browser_refuses_unsanitized_html_and_inline_scripts(tab: Tab) -> None:
    tab.expected = ("TrustedHTML", "Content Security Policy")
    refused = tab.page.evaluate("() => { try { document.body.innerHTML = '<b>x</b>'; } catch (e) { return e.name; } }")
    assert refused == "TypeError"
    tab.page.evaluate("document.body.append(Object.assign(document.createElement('style'), {textContent: 'a{}'}))")
    wait_until(lambda: any("inline style" in error for error in tab.errors))


def test_thoughts_are_folded(tab: Tab, served: Served) -> None:
    tab.ask("think")
    assert tab.done() == "It is 42."
    thoughts = tab.answers().locator(".thoughts")
    expect(thoughts.locator("summary")).to_contain_text("Thought")
    expect(thoughts.locator(".markdown")).to_have_count(0)
    thoughts.locator("summary").click()
    expect(thoughts.locator("em")).to_have_text("A number.")
    tab.ask("and now?")
    tab.done(2)
    assert served.native.asked[-1]["messages"][1]["reasoning_content"] == "First, what is asked? *A number.*"


def test_tool_calls_are_shown_and_their_results_go_back(tab: Tab, served: Served) -> None:
    tab.button("Settings").click()
    tab.page.locator(".group summary", has_text="Form").click()
    tab.page.fill("#set-tools", json.dumps(TOOLS))
    tab.button("Done").click()
    tab.ask("call a tool")
    assert tab.done() == "Let me look."
    call = tab.answers().locator(".tool-call")
    expect(call.locator("summary")).to_have_text("Calls f")
    assert json.loads(call.locator("pre").inner_text()) == {"city": "Oslo", "unit": "C"}
    tab.page.get_by_label("Result of f").fill("7 degrees")
    tab.button("Send result").click()
    tab.done(2)
    _, assistant, result = served.native.asked[-1]["messages"]
    assert assistant["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"city": "Oslo", "unit": "C"}'}
    assert result["role"] == "tool" and result["content"] == "7 degrees"
    assert result["tool_call_id"] == assistant["tool_calls"][0]["id"]


def test_figures_while_it_is_written(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(20)
    figures = tab.answers().locator(".figures")
    expect(figures).to_contain_text(re.compile(r"\d+\.\d tok/s"))
    expect(figures).to_contain_text(re.compile(r"AL \d\.\d\d"))
    expect(tab.answers()).to_have_class(re.compile(r"\brunning\b"))


def test_prompt_progress(open_tab: OpenTab) -> None:
    with serve(n_batch=16) as served:
        tab = open_tab(served.url)
        served.pace.hold()
        tab.ask("x" * 64)
        expect(tab.answers()).to_contain_text(re.compile("waiting for the model|reading the prompt: 0 of 71 tokens"))
        served.pace.release(2)
        expect(tab.answers()).to_contain_text("reading the prompt: 32 of 71 tokens")
        expect(tab.page.locator("progress")).to_have_attribute("value", "32")
        served.pace.free()
        assert tab.done() == "You said: " + "x" * 64


def test_complete_blocks_are_drawn_once(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("show all")
    served.pace.release(100)
    expect(tab.answers().locator("table")).to_be_visible()
    tab.page.evaluate("document.querySelector('.answer h2').mark = document.querySelector('.answer p').mark = 1")
    served.pace.free()
    tab.done()
    marks = tab.page.evaluate("['h2', 'p'].map((name) => document.querySelector('.answer ' + name).mark)")
    assert marks == [1, 1]


def test_a_text_that_grew_looks_as_if_it_had_come_at_once(open_tab: OpenTab) -> None:
    """After a reload every answer is drawn from the whole text."""

    def drawn() -> list[str]:
        found: list[str] = tab.page.locator(".answer .markdown").evaluate_all(
            "(all) => all.map((one) => one.innerHTML)"
        )
        return [re.sub(r"<!---->", "", re.sub(r">\s+<", "><", html)) for html in found]

    with serve(step_seconds=0.01) as served:
        tab = open_tab(served.url)
        for number in range(len(TRICKY)):
            tab.ask(f"tricky {number}")
            tab.done(number + 1)
        grown = drawn()
        tab.page.reload()
        tab.done(len(TRICKY))
        assert drawn() == grown
        assert '<ul dir="auto"><li><p>one</p>' in grown[0] and '<ol start="3" dir="auto"><li>' in grown[1]


# ---- stop, again, branches ----


def test_stop_keeps_what_was_written(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    tab.button("Stop").click()
    assert tab.done().startswith("1 2 3")
    expect(tab.answers()).to_contain_text("Stopped.")
    served.pace.free()
    wait_until(lambda: len(served.native.cancelled) > 0)
    tab.ask("go on")
    tab.done(2)
    assert served.native.asked[-1]["messages"][1]["content"].startswith("1 2 3")


def test_a_question_that_was_stopped_at_once_goes_with_the_next(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    expect(tab.answers()).to_have_class(re.compile(r"\brunning\b"))
    tab.button("Stop").click()
    expect(tab.answers()).to_contain_text("Stopped.")
    served.pace.free()
    tab.ask("go on")
    tab.sees("You said: go on")
    assert served.native.asked[-1]["messages"] == [{"role": "user", "content": "count\n\ngo on"}]


def test_what_is_at_the_end_stays_in_its_place(tab: Tab) -> None:
    """When the end comes in sight, the button that leads there goes: a click that has begun must not miss."""
    tab.ask("show all")
    tab.done()
    tab.page.locator(".thread").evaluate("(thread) => (thread.scrollTop = 0)")
    expect(tab.button("To the end")).to_be_visible()
    rest = "document.querySelector('.thread').scrollHeight - document.querySelector('.column').offsetHeight"
    assert tab.page.evaluate(rest) == 0
    tab.button("To the end").click()
    expect(tab.button("To the end")).to_have_count(0)


def test_answer_again_and_edit_make_branches(tab: Tab, served: Served) -> None:
    tab.ask("one")
    tab.done()
    tab.button("Answer again").click()
    expect(tab.answers().locator(".branches")).to_contain_text("2 / 2")
    tab.button("Previous branch").click()
    expect(tab.answers().locator(".branches")).to_contain_text("1 / 2")
    tab.page.locator(".question").hover()
    tab.button("Edit question").click()
    tab.page.get_by_label("Edited question").fill("two")
    tab.button("Ask again").click()
    tab.sees("You said: two")
    expect(tab.page.locator(".question .branches")).to_contain_text("2 / 2")
    tab.page.locator(".question").get_by_label("Previous branch").click()
    tab.sees("You said: one")
    tab.page.reload()
    tab.sees("You said: one")
    expect(tab.page.locator(".question .branches")).to_contain_text("1 / 2")


# ---- conversations ----


def test_conversations_are_kept_searched_renamed_and_removed(tab: Tab) -> None:
    for text in ("about apples", "about pears"):
        tab.page.locator(".new-chat").click()
        tab.ask(text)
        tab.sees(f"You said: {text}")
    tab.page.reload()
    rows = tab.page.locator(".conversations .title")
    expect(rows).to_have_text(["about pears", "about apples"])
    tab.sees("You said: about pears")
    tab.page.fill("#search", "SAID apples")
    expect(rows).to_have_text(["about apples"])
    rows.click()
    tab.sees("You said: about apples")
    tab.page.fill("#search", "")
    tab.page.locator(".conversations li").nth(1).hover()
    tab.button("Rename about apples").click()
    tab.page.get_by_label("Title").fill("fruit")
    tab.page.keyboard.press("Enter")
    expect(rows).to_have_text(["about pears", "fruit"])
    tab.page.locator(".conversations li").first.hover()
    tab.button("Remove about pears").click()
    expect(rows).to_have_text(["fruit"])
    tab.button("Undo").click()
    expect(rows).to_have_text(["about pears", "fruit"])
    tab.page.reload()
    expect(rows).to_have_text(["about pears", "fruit"])


def test_a_conversation_that_undo_shows_again_is_kept(tab: Tab) -> None:
    """Even if the page is left at that very moment."""
    for count in (1, 2, 3):
        tab.ask("about apples")
        tab.done(count)
    tab.page.locator(".conversations li").hover()
    tab.button("Remove about apples").click()
    expect(tab.page.locator(".conversations li")).to_have_count(0)
    tab.page.evaluate("""() => {
      const list = document.querySelector(".conversations");
      new MutationObserver(() => list.childElementCount && location.reload()).observe(list, { childList: true });
    }""")
    with tab.page.expect_navigation():
        tab.button("Undo").click()
    tab.page.locator(".conversations .title", has_text="about apples").click()
    expect(tab.page.locator(".answer.done")).to_have_count(3)


def test_export_and_import(tab: Tab, open_tab: OpenTab, served: Served, tmp_path: Path) -> None:
    tab.ask("keep this")
    tab.done()
    with tab.page.expect_download() as download:
        tab.button("Export").click()
    file = tmp_path / "conversations.json"
    download.value.save_as(file)
    other = open_tab(served.url)
    other.imports(file)
    other.page.locator(".conversations .title").click()
    assert other.done() == "You said: keep this"
    other.page.reload()
    assert other.done() == "You said: keep this"
    with other.page.expect_download() as download:
        other.button("Save this chat as Markdown").click()
    markdown = Path(download.value.path()).read_text(encoding="utf-8")
    assert markdown == "# keep this\n\n## You\n\nkeep this\n\n## Assistant\n\nYou said: keep this\n"
    file.write_text('{"format": "another"}')
    other.imports(file)
    expect(other.page.locator(".notice")).to_contain_text("has no conversations of dflash-local")


def test_text_files_are_attached(tab: Tab, served: Served, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("```\ncode\n```\n")
    (tmp_path / "program.bin").write_bytes(b"\x7fELF\x00\xff")
    for name in ("notes.md", "program.bin"):
        tab.page.set_input_files("input[multiple]", tmp_path / name)
    expect(tab.page.locator(".notice")).to_contain_text("program.bin is no text: only text files can be attached.")
    expect(tab.page.locator(".chips li")).to_have_text(["notes.md"])
    tab.ask("sum it up")
    tab.done()
    (message,) = served.native.asked[-1]["messages"]
    assert message["content"] == "File notes.md:\n````\n```\ncode\n```\n````\n\nsum it up"
    tab.page.locator(".file summary").click()
    expect(tab.page.locator(".file pre")).to_have_text("```\ncode\n```\n")
    expect(tab.page.locator(".chips li")).to_have_count(0)


# ---- settings, keys, looks ----

# Fields of sampling that chats set themselves: from templates, tools and response_format.
NOT_SET = {
    "grammar_type", "grammar_lazy", "grammar_triggers", "preserved_tokens", "generation_prompt", "thinking_start_tag",
    "thinking_end_tags",
}  # fmt: skip


def test_every_sampling_field_can_be_set(tab: Tab) -> None:
    tab.button("Settings").click()
    tab.page.locator("#set-temperature").wait_for()
    listed = set(tab.page.locator(".group label").all_text_contents())
    assert {*SamplingParams.__dataclass_fields__} - NOT_SET <= listed


HELD_PROPS = """
  const [fetchNow, released] = [fetch, new Promise((resolve) => (window.release = resolve))];
  window.fetch = async (url, ...more) => {
    if (String(url) === "props") await released;
    return fetchNow(url, ...more);
  };
"""


def test_settings_that_are_open_before_the_server_is_ready(open_tab: OpenTab, served: Served) -> None:
    """Its defaults come into the open form, and what was typed meanwhile stays."""
    tab = open_tab(served.url, init=HELD_PROPS)
    tab.button("Settings").click()
    tab.page.locator("#set-top_p").fill("0.5")
    expect(tab.page.locator("#set-temperature")).to_have_attribute("placeholder", "default")
    tab.page.evaluate("release()")
    expect(tab.page.locator("#set-temperature")).to_have_attribute("placeholder", "0.8")
    expect(tab.page.locator("#set-top_p")).to_have_value("0.5")


def test_settings_begin_with_the_servers_defaults(tab: Tab, served: Served) -> None:
    defaults = served.live.http.get("/props").json()["default_generation_settings"]["params"]
    tab.button("Settings").click()
    for name in ("temperature", "top_k"):  # the fields are there before the server's answer is
        expect(tab.page.locator(f"#set-{name}")).to_have_attribute("placeholder", str(defaults[name]))
    tab.page.locator("#set-top_p").fill("7")
    tab.page.keyboard.press("Tab")
    expect(tab.page.locator("#set-top_p-note")).to_have_text("at most 1")
    tab.page.locator("#set-top_p").fill("")
    tab.page.locator("#set-temperature").fill("1e999")  # JSON has no such number
    tab.page.keyboard.press("Tab")
    expect(tab.page.locator("#set-temperature-note")).to_have_text("this is no number")
    tab.page.locator("#set-temperature").fill("0.3")
    tab.page.locator("#set-system").fill("Be brief.")
    tab.page.locator("#set-samplers").fill("top_k;temperature")
    tab.button("Done").click()
    tab.page.reload()
    tab.ask("hello")
    tab.done()
    asked = served.native.asked[-1]
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert json.loads(served.native.submitted[-1]["sampling"])["temperature"] == 0.3
    assert json.loads(served.native.submitted[-1]["sampling"])["samplers"] == ["top_k", "temperature"]
    tab.button("Settings").click()
    expect(tab.page.locator("#set-temperature")).to_have_value("0.3")
    tab.button("Reset").click()
    expect(tab.page.locator("#set-temperature")).to_have_value("")


def test_a_refusal_is_told_and_can_be_tried_again(tab: Tab, served: Served) -> None:
    tab.expected = ("400",)
    tab.button("Settings").click()
    tab.page.locator(".group summary", has_text="Drafting").click()
    tab.page.locator("#set-accept").select_option("block")
    tab.button("Done").click()
    tab.ask("hello")
    expect(tab.answers().locator(".error")).to_contain_text("block needs a DFlash 2")
    tab.button("Settings").click()
    tab.button("Reset").click()
    tab.button("Done").click()
    tab.button("Answer again").click()
    tab.sees("You said: hello")


def test_a_key_is_asked_for(open_tab: OpenTab) -> None:
    with serve(Settings(alias="closed", api_keys=("secret",))) as served:
        tab = open_tab(served.url)
        tab.expected = ("401",)
        for key in ("wrong", "secret"):
            tab.page.get_by_role("textbox", name="API key").fill(key)
            tab.button("Use this key").click()
        expect(tab.page.locator("h1")).to_have_text("closed")
        tab.ask("hello")
        assert tab.done() == "You said: hello"
        tab.page.reload()
        expect(tab.page.locator("dialog")).to_have_count(0)
        assert tab.done() == "You said: hello"


def test_keyboard(tab: Tab, served: Served) -> None:
    press = tab.page.keyboard.press
    expect(tab.page.locator(".composer .send")).to_be_enabled()
    tab.page.locator("#message").click()
    tab.page.keyboard.type("two")
    press("Shift+Enter")
    tab.page.keyboard.type("lines")
    press("Enter")
    tab.sees("You said: lines")
    assert served.native.asked[-1]["messages"][0]["content"] == "two\nlines"
    press("ArrowUp")
    expect(tab.page.get_by_label("Edited question")).to_be_focused()
    press("Escape")
    press("Alt+n")
    expect(tab.page.locator(".welcome h1")).to_have_text("Qwen3-8B-Q4_K_M")
    expect(tab.page.locator("#message")).to_be_focused()
    press("Control+k")
    expect(tab.page.locator("#search")).to_be_focused()
    press("Control+/")
    expect(tab.page.locator("dialog")).to_contain_text("stop the answer")
    press("Escape")
    expect(tab.page.locator("dialog")).to_have_count(0)
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    press("Escape")
    expect(tab.answers()).to_contain_text("Stopped.")


def test_light_and_dark(open_tab: OpenTab, served: Served) -> None:
    def is_dark(tab: Tab) -> bool:
        colour = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) < 200

    tab = open_tab(served.url, color_scheme="dark")
    assert is_dark(tab)
    frame = "[...document.querySelectorAll('meta[name=theme-color]')].find(({ media }) => matchMedia(media).matches)"
    assert tab.page.evaluate(f"{frame}.content") == "#16181a"
    tab.button("Settings").click()
    tab.page.locator("#set-theme").select_option("light")
    assert not is_dark(tab)
    assert tab.page.evaluate(f"{frame}.content") == "#fdfdfc"
    tab.page.reload()
    expect(tab.page.locator(".thread")).to_be_visible()
    assert not is_dark(tab)


def test_a_phones_width(open_tab: OpenTab, served: Served) -> None:
    tab = open_tab(served.url, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    expect(tab.page.locator(".sidebar")).to_have_count(0)
    tab.ask("show all")
    tab.done()
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 360
    assert tab.page.evaluate("document.querySelector('.thread').scrollWidth") == 360
    tab.button("Conversations").click()
    tab.page.locator(".conversations .title").click()
    expect(tab.page.locator(".sidebar")).to_have_count(0)


def test_below_a_prefix(open_tab: OpenTab) -> None:
    with serve(Settings(alias="below", api_prefix="/llm")) as served:
        tab = open_tab(served.url + "/llm")
        assert tab.page.url == served.url + "/llm/"
        tab.ask("hello")
        assert tab.done() == "You said: hello"


def test_a_routers_model_is_chosen(open_tab: OpenTab, tmp_path: Path) -> None:
    with routing(tmp_path / "run", model("a"), model("b")) as server:
        tab = open_tab(server.url)
        tab.expected = ("404",)  # these models are scripts, which answer no stream
        expect(tab.page.locator(".welcome")).to_contain_text("One of 2 models")
        tab.page.get_by_label("Model").select_option("b")
        tab.page.reload()
        expect(tab.page.locator("h1")).to_have_text("b")
        tab.button("Settings").click()
        expect(tab.page.locator(".group")).not_to_have_count(0)
        assert server.http.get("/models/b").json()["status"]["value"] == "unloaded"
        tab.button("Done").click()
        with tab.page.expect_request("**/v1/chat/completions") as request:
            tab.ask("hello")
        assert request.value.post_data_json["model"] == "b"
        expect(tab.answers().locator(".error")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(open_tab: OpenTab, served: Served, scheme: str) -> None:
    """axe finds nothing, in a chat, in the settings, and on a phone."""
    tab = open_tab(served.url, color_scheme=scheme, reduced_motion="reduce")
    expect(tab.page.locator(".welcome h1")).to_be_visible()
    assert faults(tab.page) == []
    for count, text in enumerate(("think", "show all"), 1):
        tab.ask(text)
        tab.done(count)
    tab.page.locator(".thoughts summary").click()
    tab.button("Answer again").last.click()
    expect(tab.answers().last.locator(".branches")).to_contain_text("2 / 2")
    expect(tab.answers().last.locator(".figures")).to_be_visible()
    assert faults(tab.page) == []
    tab.button("Settings").click()
    expect(tab.page.locator(".group")).not_to_have_count(0)
    tab.page.evaluate("document.querySelectorAll('.group').forEach((group) => group.open = true)")
    assert faults(tab.page) == []
    tab.button("Done").click()
    tab.page.set_viewport_size({"width": 360, "height": 740})
    tab.button("Conversations").click()
    assert faults(tab.page) == []


# ---- streams that outlive the page ----


def test_an_answer_goes_on_after_a_reload(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    tab.page.reload()
    tab.sees("1 2 3")
    expect(tab.button("Stop")).to_be_visible()
    served.pace.free()
    assert tab.done() == COUNT


def test_a_reload_after_the_end_finds_the_end(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    tab.page.goto("about:blank")
    served.pace.free()
    wait_until(lambda: not any(slot["is_processing"] for slot in served.live.engine.slots()))
    tab.page.goto(served.url)
    assert tab.done() == COUNT


def test_an_answer_that_is_no_longer_kept_says_so(tab: Tab, served: Served) -> None:
    tab.expected = ("404",)
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    tab.page.wait_for_timeout(1100)  # it is kept once a second
    served.pace.release(10)
    wait_until(lambda: "1 2 3" in tab.page.evaluate(KEPT))
    tab.page.goto("about:blank")
    served.recordings._kept.clear()
    served.pace.free()
    tab.page.goto(served.url)
    expect(tab.answers().locator(".error")).to_contain_text("no longer keeps this answer")
    assert tab.done().startswith("1 2 3")


def test_a_lost_connection_is_taken_up_again(tab: Tab, served: Served) -> None:
    tab.expected = ("ERR_INTERNET_DISCONNECTED", "ERR_NETWORK", "ERR_FAILED", "ERR_ABORTED", "ERR_INCOMPLETE")
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    tab.page.context.set_offline(True)
    served.pace.release(10)
    tab.page.wait_for_timeout(300)
    tab.page.context.set_offline(False)
    served.pace.free()
    assert tab.done() == COUNT


# ---- what the first page did wrong ----


def test_a_new_chat_does_not_get_the_rest_of_the_old_answer(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    tab.button("New chat").first.click()
    served.pace.free()
    tab.ask("hello")
    assert tab.done() == "You said: hello"
    assert served.native.asked[-1]["messages"] == [{"role": "user", "content": "hello"}]
    tab.page.locator(".conversations .title", has_text="count").click()
    assert tab.done() == COUNT


def test_enter_during_an_answer_does_nothing(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    tab.ask("wait")
    served.pace.free()
    assert tab.done() == COUNT
    expect(tab.page.locator("#message")).to_have_value("wait")
    tab.page.keyboard.press("Enter")
    tab.sees("You said: wait")


def test_stop_does_not_send_what_is_being_written(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("count")
    served.pace.release(10)
    tab.sees("1 2 3")
    tab.page.fill("#message", "and then")
    tab.button("Stop").click()
    expect(tab.answers()).to_contain_text("Stopped.")
    expect(tab.button("Send")).to_be_enabled()
    expect(tab.page.locator("#message")).to_have_value("and then")
    assert len(tab.asked) == 1


def test_what_is_being_written_outlives_a_reload(tab: Tab, served: Served) -> None:
    tab.page.fill("#message", "a long thought")
    tab.page.reload()
    expect(tab.page.locator("#message")).to_have_value("a long thought")
    expect(tab.button("Send")).to_be_enabled()
    tab.page.locator("#message").press("Enter")
    tab.sees("You said: a long thought")
    tab.page.reload()
    expect(tab.page.locator("#message")).to_have_value("")


COMPOSING = """(area, key) => area.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...%s }))"""


@pytest.mark.parametrize("how", ["{ isComposing: true }", "{ keyCode: 229 }"])
def test_keys_of_an_input_method_are_its_own(tab: Tab, served: Served, how: str) -> None:
    tab.ask("hello")
    tab.done()
    tab.page.fill("#message", "にほ")
    tab.page.locator("#message").evaluate(COMPOSING % how, "Enter")
    expect(tab.page.locator("#message")).to_have_value("にほ")
    tab.button("Edit question").click()
    editor = tab.page.get_by_label("Edited question")
    for key in ("Escape", "Enter"):
        editor.evaluate(COMPOSING % how, key)
        expect(editor).to_be_visible()
    tab.page.locator(".conversations li").first.hover()
    tab.button("Rename hello").click()
    title = tab.page.get_by_label("Title", exact=True)
    for key in ("Escape", "Enter"):
        title.evaluate(COMPOSING % how, key)
        expect(title).to_be_visible()
    assert len(tab.asked) == 1


def test_option_types_letters_on_a_mac(open_tab: OpenTab, served: Served) -> None:
    mac = "Object.defineProperty(navigator, 'platform', { get: () => 'MacIntel' });"
    tab = open_tab(served.url, init=mac)
    tab.ask("hello")
    tab.done()
    tab.page.locator("#message").press("Alt+n")
    expect(tab.page.locator(".question")).to_have_count(1)
    tab.page.locator("#message").press("Control+Alt+n")
    expect(tab.page.locator(".welcome h1")).to_be_visible()


def test_facts_that_were_refused_can_be_asked_again(open_tab: OpenTab) -> None:
    with serve(Settings(api_keys=("schlüssel",))) as served:
        tab = open_tab(served.url)
        tab.expected = ("401",)
        expect(tab.page.locator("dialog input")).to_be_visible()  # a key pressed before reaches no dialog
        tab.page.keyboard.press("Escape")
        expect(tab.page.locator(".absence")).to_contain_text("API key")
        tab.button("Try again").click()
        tab.page.locator("dialog input").fill("schlüssel")
        tab.page.keyboard.press("Enter")
        tab.ask("hello")
        assert tab.done() == "You said: hello"


def test_a_full_storage_does_not_part_an_answer_from_its_question(tab: Tab, served: Served) -> None:
    tab.page.evaluate("""() => {
      const put = IDBObjectStore.prototype.put;
      IDBObjectStore.prototype.put = function (value) {
        if (this.name === "turns" && value.role === "user" && !window.hasRoom) throw new Error("it is full");
        return put.call(this, value);
      };
    }""")
    served.pace.hold()
    tab.ask("hello")
    expect(tab.page.locator(".trouble")).to_have_text("The last change was not kept: it is full")
    tab.page.evaluate("window.hasRoom = true")
    served.pace.free()
    tab.done()
    expect(tab.page.locator(".trouble")).to_have_count(0)
    tab.page.reload()
    expect(tab.page.locator(".question .bubble")).to_have_text("hello")
    assert tab.done() == "You said: hello"


def test_a_full_browser_memory_keeps_no_older_value(open_tab: OpenTab, served: Served) -> None:
    full = """const set = Storage.prototype.setItem;
      Storage.prototype.setItem = function (name, value) {
        if (value.length > 20) throw new Error("it is full");
        set.call(this, name, value);
      };"""
    tab = open_tab(served.url, init=full)
    for count, system in enumerate(("Be brief", "Be as long as you ever can"), 1):
        tab.button("Settings").click()
        tab.page.locator("#set-system").fill(system)
        tab.page.keyboard.press("Escape")
        tab.ask("hello")
        tab.done(count)
        assert tab.asked[-1]["messages"][0]["content"] == system


def test_stopping_while_the_model_thinks_keeps_the_turn(tab: Tab, served: Served) -> None:
    served.pace.hold()
    tab.ask("think")
    served.pace.release(5)
    expect(tab.answers().locator(".thoughts summary")).to_contain_text("Thinking")
    tab.button("Stop").click()
    expect(tab.answers()).to_contain_text("Stopped.")
    served.pace.free()
    tab.ask("well?")
    tab.sees("You said: well?")
    roles = [(message["role"], message["content"]) for message in served.native.asked[-1]["messages"]]
    assert roles == [("user", "think"), ("assistant", ""), ("user", "well?")]


def test_streams_need_no_async_iteration(open_tab: OpenTab, served: Served) -> None:
    names = ("[Symbol.asyncIterator]", ".values")
    tab = open_tab(served.url, init="".join(f"delete ReadableStream.prototype{name};" for name in names))
    tab.ask("hello")
    assert tab.done() == "You said: hello"
