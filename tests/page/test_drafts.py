"""The chat page in a browser: what one sees of drafts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import TimeoutError as NoSuchState
from playwright.sync_api import expect

from tests.page.conftest import OpenTab, Served, Tab, faults, serve
from tests.page.drafted import PLAIN_MS, DraftedNative
from tests.page.scripts import CALL, RICH, STORY, THOUGHTS
from tests.patience import wait_until

PASSES = DraftedNative.words.passes(RICH)


@pytest.fixture
def drafts(tab: Tab, served: Served) -> Iterator[Tab]:
    """A tab that shows drafts."""
    tab.button("Show drafts").click()
    expect(tab.page.locator("#switch-draft")).to_be_visible()
    yield tab
    served.native.plain_script = None


def asked(tab: Tab, text: str) -> dict[str, Any]:
    """Ask, and what the request said."""
    with tab.page.expect_request("**/v1/chat/completions") as request:
        tab.ask(text)
    body: dict[str, Any] = request.value.post_data_json
    return body


def passes_of(tab: Tab, served: Served, text: str) -> list[dict[str, Any]]:
    """Ask; what the server tells of the passes, to the same request once more."""
    body = asked(tab, text)
    finished(tab)
    frames = served.live.http.post("/v1/chat/completions", json=body).text.split("\n\n")
    events = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: {")]
    return [event["dflash"]["pass"] for event in events if "pass" in event.get("dflash", {})]


def finished(tab: Tab, count: int = 1) -> None:
    expect(tab.page.locator(".answer:not(.running)")).to_have_count(count)


def percent(share: float) -> str:
    """Half of a per cent is rounded up; the script has nothing near never or always."""
    assert 0.01 <= share <= 0.99
    return f"{int(100 * share + 0.5)}%"


def raw_text(tab: Tab) -> str:
    return str(tab.answers().last.locator(".tokens").text_content())


def tree_at(tab: Tab, index: int) -> Any:
    """Open the tree of a pass by its bar. A click is lost if the page scrolls to its end between its two halves, as it
    does soon after its size has changed."""
    strip, dialog = tab.answers().last.locator(".strip"), tab.page.locator(".tree-dialog")
    for _ in range(20):
        strip.evaluate("(strip) => strip.scrollLeft = 0")
        strip.click(position={"x": 8 * index + 3, "y": 30})
        with suppress(NoSuchState):
            dialog.wait_for(timeout=5000)
            return dialog
    raise AssertionError("no click on the bar opened its tree")


# ---- what is asked for ----


def test_drafts_are_asked_for_only_when_shown(tab: Tab) -> None:
    body = asked(tab, "hello")
    assert "return_drafts" not in body and "seed" not in body
    tab.done()
    expect(tab.answers().locator(".drafts, .tokens, .look-switch, .prove")).to_have_count(0)
    tab.button("Show drafts").click()
    body = asked(tab, "hello again")
    assert body["return_drafts"] is True and body["seed"] >= 0
    expect(tab.answers().last.locator(".drafts")).to_be_visible()
    tab.button("Settings").click()
    expect(tab.page.locator("#set-drafts")).to_have_value("on")
    tab.page.select_option("#set-drafts", "off")
    tab.button("Done").click()
    expect(tab.button("Show drafts")).to_have_attribute("aria-pressed", "false")
    expect(tab.answers().last.locator(".drafts")).to_have_count(0)
    assert "return_drafts" not in asked(tab, "and again")
    tab.button("Show drafts").click()
    tab.page.reload()
    expect(tab.button("Show drafts")).to_have_attribute("aria-pressed", "true")


def test_the_switches_are_the_settings_fields(drafts: Tab) -> None:
    page = drafts.page
    page.select_option("#switch-draft", "chain")
    page.fill("#switch-budget", "6")
    page.select_option("#switch-lookup", "false")
    body = asked(drafts, "hello")
    assert (body["draft"], body["budget"], body["lookup"]) == ("chain", 6, False)
    finished(drafts)
    drafts.button("Settings").click()
    expect(page.locator("#set-draft")).to_have_value("chain")
    page.select_option("#set-draft", "off")
    page.fill("#set-budget", "auto")
    drafts.button("Done").click()
    expect(page.locator("#switch-draft")).to_have_value("off")
    expect(page.locator("#switch-budget")).to_have_value("auto")
    page.fill("#switch-budget", "many")
    page.keyboard.press("Tab")
    expect(page.locator("#switch-budget-note")).to_have_text("this is no number")
    assert asked(drafts, "hello")["budget"] == "auto"
    finished(drafts, 2)


# ---- the text by tokens ----


def test_tokens_are_tinted_by_who_proposed_them(drafts: Tab, served: Served) -> None:
    passes = passes_of(drafts, served, "show drafts")
    assert len(passes) == len(PASSES)
    assert raw_text(drafts) == RICH
    expected = Counter[str]()
    for told in passes:
        for depth, text in enumerate(told["tokens"]):
            by = told["tree"][told["path"][depth + 1]]["by"] if depth < told["accepted"] else "target"
            pieces = 2 if "\n" in text and not text.endswith("\n") else 1  # a token may span two lines
            expected[by if by == "target" else f"{by} d{min(depth + 1, 8)}"] += pieces
    assert {"lookup d8", "prediction d6", "draft d1", "draft d5"} <= set(expected)
    for classes, count in expected.items():
        found = drafts.answers().locator("".join(f".{name}" for name in ["token", *classes.split()]))
        expect(found).to_have_count(count)
    expect(drafts.answers().locator(".token.first")).to_have_count(len(passes))
    shades = [
        drafts.answers().locator(f".token.draft.d{depth}").first.evaluate("(e) => getComputedStyle(e).backgroundColor")
        for depth in range(1, 6)
    ]
    assert len(set(shades)) == 5, "deeper tokens have a tint of their own"


def test_a_token_tells_where_it_comes_from(drafts: Tab, served: Served) -> None:
    passes = passes_of(drafts, served, "show drafts")
    index, told = next((index, told) for index, told in enumerate(passes) if told["accepted"] == 4)
    node = told["tree"][told["path"][3]]
    tip = drafts.answers().locator(".token-tip")

    def tells() -> None:
        expect(tip).to_contain_text("guessed by the drafter at depth 3")
        expect(tip).to_contain_text(f"the drafter gave it {percent(node['prob'])}")
        expect(tip).to_contain_text(f"pass {index}: guessed {told['nodes'] - 1}, kept 4")

    token = drafts.answers().locator(f".token[data-pass='{index}'][data-token='2']").first
    token.hover()
    tells()
    lit = drafts.answers().locator(".token.lit")
    assert set(lit.evaluate_all("(all) => all.map((one) => one.dataset.pass)")) == {str(index)}
    drafts.page.mouse.move(5, 5)
    expect(tip).to_have_count(0)
    token.click()
    tells()
    drafts.page.keyboard.press("ArrowLeft")
    expect(tip).to_contain_text("at depth 2")
    drafts.page.keyboard.press("End")
    expect(tip).to_contain_text(f"pass {len(passes) - 1}")
    drafts.page.keyboard.press("Home")
    expect(tip).to_contain_text("said by the model itself")
    expect(tip).to_contain_text("pass 0, the prompt's last")
    token.click()
    drafts.page.keyboard.press("Enter")
    expect(drafts.page.locator(".tree-dialog h2")).to_have_text(f"Pass {index}")


def test_text_and_tokens(drafts: Tab, served: Served) -> None:
    served.pace.hold()
    drafts.ask("show drafts")
    served.pace.release(12)
    expect(drafts.answers().locator(".tokens")).to_contain_text("Speculative")
    drafts.button("Text").click()
    expect(drafts.answers().locator("h2")).to_have_text("A short tour")
    expect(drafts.answers().locator(".strip")).to_be_visible()
    served.pace.free()
    finished(drafts)
    drafts.button("Tokens").click()
    assert raw_text(drafts) == RICH
    expect(drafts.answers().locator("h2")).to_have_count(0)
    drafts.button("Text").click()
    drafts.button("Show drafts").click()
    expect(drafts.answers().locator(".drafts")).to_have_count(0)


def test_what_is_drawn_stays(drafts: Tab, served: Served) -> None:
    served.pace.hold()
    drafts.ask("show drafts")
    served.pace.release(20)
    expect(drafts.answers().locator(".token")).not_to_have_count(0)
    drafts.page.evaluate("for (const token of document.querySelectorAll('.token')) token.mark = 1")
    before = drafts.answers().locator(".token").count()
    served.pace.free()
    finished(drafts)
    marks = drafts.page.evaluate("[...document.querySelectorAll('.token')].map((token) => token.mark ?? 0)")
    assert len(marks) > before and marks[:before] == [1] * before and not any(marks[before:])


@pytest.mark.parametrize(("question", "raw"), [("think", THOUGHTS), ("call a tool", None)])
def test_thoughts_and_calls_are_as_the_model_wrote_them(drafts: Tab, question: str, raw: str | None) -> None:
    if raw is None:
        drafts.page.evaluate(
            """localStorage.setItem("dflash-local.fields", JSON.stringify(
            {tools: [{type: "function", function: {name: "f", parameters: {type: "object"}}}]}))"""
        )
        drafts.page.reload()
        raw = CALL.decode().replace("\0", "<tool_call>")
    drafts.ask(question)
    finished(drafts)
    assert raw_text(drafts) == raw
    expect(drafts.answers().locator(".tool-call")).to_have_count(int(question == "call a tool"))


# ---- behind the cursor ----


def test_the_tree_that_was_just_verified(drafts: Tab, served: Served) -> None:
    served.pace.hold()
    drafts.ask("show drafts")
    served.pace.release(4)  # the prompt's, and three more; the last accepts six
    guess = drafts.answers().locator(".guess")
    expect(guess).to_contain_text(re.compile(r"pass 3: guessed \d+, kept 6"))
    expect(guess.locator(".kept")).to_have_count(6)
    refused = guess.locator(".refused")
    assert refused.count() > 0
    expect(refused.first).to_have_css("text-decoration-line", "line-through")
    expect(refused.first).to_have_css("animation-name", "dim")
    expect(guess.locator(".bonus")).to_have_count(1)
    ghost = drafts.answers().locator(".cursor del")
    expect(ghost).to_have_css("text-decoration-line", "line-through")
    assert ghost.get_attribute("data-text")
    drafts.page.emulate_media(reduced_motion="reduce")
    expect(refused.first).to_have_css("animation-name", "none")
    served.pace.free()
    finished(drafts)
    expect(drafts.answers().locator(".cursor, .guess")).to_have_count(0)
    assert raw_text(drafts) == RICH


# ---- the strip and its trees ----


def test_the_strip_has_a_bar_for_each_pass(drafts: Tab, served: Served) -> None:
    passes = passes_of(drafts, served, "show drafts")
    answer = drafts.answers()
    strip = answer.get_by_role("slider", name="Passes")
    expect(strip).to_have_attribute("aria-valuemax", str(len(passes) - 1))
    reasons = Counter(told["reason"] for told in passes[1:])
    assert set(reasons) == {"drafting pays", "prompt lookup alone", "plain decoding is faster"}
    legend = answer.get_by_role("list", name="Why so many nodes").get_by_role("listitem")
    expect(legend).to_have_text([re.compile(rf"{reason}\s*{count}") for reason, count in reasons.items()])
    swatches = legend.locator(".swatch").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    colours = dict(zip(reasons, swatches, strict=True))
    assert len(set(swatches)) == len(swatches)
    strip.evaluate("(strip) => strip.scrollLeft = 0")
    pixels = """(canvas) => {
      const row = canvas.getContext("2d").getImageData(0, 44 * devicePixelRatio, 110 * devicePixelRatio, 1).data;
      const at = (index) => 4 * Math.round((8 * index + 2.5) * devicePixelRatio);
      return Array.from({length: 13}, (_, index) => `rgb(${[...row.slice(at(index), at(index) + 3)].join(", ")})`);
    }"""
    bars = [colours[told["reason"]] for told in passes[1:13]]
    wait_until(lambda: strip.locator("canvas").evaluate(pixels)[1:] == bars)  # it is drawn in the next frame
    strip.focus()
    drafts.page.keyboard.press("Home")
    drafts.page.keyboard.press("ArrowRight")
    tokens = f"{len(passes[1]['tokens'])} tokens from {passes[1]['nodes']} nodes; drafting pays"
    expect(strip).to_have_attribute("aria-valuetext", f"pass 1: {tokens}")
    drafts.page.keyboard.press("Enter")
    expect(drafts.page.locator(".tree-dialog h2")).to_have_text("Pass 1")


def test_a_bars_tree(drafts: Tab, served: Served) -> None:
    passes = passes_of(drafts, served, "show drafts")
    index, told = next((index, told) for index, told in enumerate(passes) if told["accepted"] == 6)
    dialog = tree_at(drafts, index)
    expect(dialog.locator("h2")).to_have_text(f"Pass {index}")
    expect(dialog).to_contain_text(f"{told['nodes'] - 1} tokens guessed, of a block of 8")
    expect(dialog).to_contain_text("It kept 6")
    expect(dialog.locator(".node:not(.bonus)")).to_have_count(told["nodes"])
    expect(dialog.locator(".node.kept:not(.bonus)")).to_have_count(7)  # with the anchor
    expect(dialog.locator(".node.refused")).to_have_count(told["nodes"] - 7)
    expect(dialog.locator(".edge.kept")).to_have_count(6)
    expect(dialog.locator(".node.bonus")).to_have_count(1)
    places = dialog.locator(".node rect").evaluate_all(
        "(all) => all.map((one) => `${one.getAttribute('x')} ${one.getAttribute('y')}`)"
    )
    assert len(set(places)) == len(places), "two nodes stand in one place"
    second = told["tree"][told["path"][1]]
    share = dialog.locator(".node.kept .share").nth(1)
    expect(share).to_have_text(f"{percent(second['prob'])} · {percent(second['value'])}")
    dialog.get_by_role("button", name="Next pass").click()
    expect(dialog.locator("h2")).to_have_text(f"Pass {index + 1}")
    drafts.page.keyboard.press("ArrowLeft")
    expect(dialog.locator("h2")).to_have_text(f"Pass {index}")
    dialog.locator(".tree-box").evaluate("(box) => { box.style.width = '200px'; }")
    box = dialog.locator(".tree-box").bounding_box()
    drafts.page.mouse.move(box["x"] + 150, box["y"] + 60)
    drafts.page.mouse.down()
    drafts.page.mouse.move(box["x"] + 50, box["y"] + 60)
    drafts.page.mouse.up()
    assert dialog.locator(".tree-box").evaluate("(box) => box.scrollLeft") == 100
    drafts.button("Close").click()
    plain = next(index for index, told in enumerate(passes) if told["reason"] == "plain decoding is faster")
    expect(tree_at(drafts, plain)).to_contain_text("A plain pass: one token (plain decoding is faster)")


def test_figures(drafts: Tab, served: Served) -> None:
    passes = passes_of(drafts, served, "show drafts")
    after = passes[1:]
    figures = drafts.answers().locator(".draft-figures")
    rate = 1000 / (PLAIN_MS + 0.5)
    expect(figures).to_contain_text(re.compile(rf"plain would be\s*{rate:.1f} tok/s"))
    tokens = sum(len(told["tokens"]) for told in after)
    expect(figures).to_contain_text(re.compile(rf"AL\s*{tokens / len(after):.2f}"))
    guessed = sum(told["nodes"] - 1 for told in after)
    accepted = sum(told["accepted"] for told in after)
    expect(figures).to_contain_text(re.compile(rf"guessed, kept\s*{guessed:,}, {accepted:,}"))
    shown = str(figures.inner_text())
    measured = float(re.findall(r"with drafts\s*([\d.]+) tok/s", shown)[0])
    assert float(re.findall(r"([\d.]+)×", shown)[0]) == pytest.approx(measured / rate, abs=0.02)
    depths = figures.locator(".depths > span")
    deepest = max(told["depth"] for told in after)
    expect(depths).to_have_count(deepest)
    at_2 = [told["accepted"] >= 2 for told in after if told["depth"] >= 2]
    expect(depths.nth(1)).to_have_attribute("title", f"depth 2: {sum(at_2)} of {len(at_2)}")
    verify, draft = (sum(told[name] for told in after) for name in ("verify_ms", "draft_ms"))
    bars = figures.locator(".shares i")
    assert [bars.nth(at).get_attribute("title") for at in (0, 1)] == [
        f"verify: {int(verify + 0.5)} ms",
        f"draft: {int(draft + 0.5)} ms",
    ]
    shares = [float(share) for share in re.findall(r"(\d+)%", shown)]
    assert len(shares) == 3 and abs(sum(shares) - 100) <= 2


def test_figures_while_it_is_written(drafts: Tab, served: Served) -> None:
    served.pace.hold()
    drafts.ask("show drafts")
    served.pace.release(20)
    expect(drafts.answers().locator(".draft-figures")).to_contain_text(re.compile(r"now\s*[\d.]+ tok/s"))
    served.pace.free()
    expect(drafts.answers().locator(".draft-figures")).to_contain_text("with drafts")


# ---- what is kept ----


def test_passes_are_kept_over_a_reload(drafts: Tab, served: Served) -> None:
    passes = passes_of(drafts, served, "show drafts")
    drafts.page.reload()
    expect(drafts.answers().locator(".token.first")).to_have_count(len(passes))
    assert raw_text(drafts) == RICH
    told = next(index for index, told in enumerate(passes) if told["accepted"] == 6)
    expect(tree_at(drafts, told).locator(".node:not(.bonus)")).to_have_count(passes[told]["nodes"])


def test_passes_go_on_after_a_reload(drafts: Tab, served: Served) -> None:
    served.pace.hold()
    drafts.ask("show drafts")
    served.pace.release(30)
    drafts.sees("Nothing changes")
    drafts.page.reload()
    drafts.sees("Nothing changes")
    served.pace.free()
    finished(drafts)
    assert raw_text(drafts) == RICH
    expect(drafts.answers().locator(".token.first")).to_have_count(len(PASSES))


def test_passes_go_with_their_conversation(drafts: Tab) -> None:
    count = """(store) => new Promise((done) => {
      const opened = indexedDB.open("dflash-local");
      opened.onsuccess = () => {
        const asked = opened.result.transaction(store).objectStore(store).count();
        asked.onsuccess = () => { opened.result.close(); done(asked.result); };
      };
    })"""
    drafts.ask("tell a story")
    finished(drafts)
    wait_until(lambda: drafts.page.evaluate(count, "passes") == 1)
    drafts.page.locator(".conversations li").hover()
    drafts.button("Remove tell a story").click()
    drafts.button("Undo").click()
    drafts.page.locator(".conversations .title").click()
    assert raw_text(drafts) == STORY
    drafts.page.locator(".conversations li").hover()
    drafts.button("Remove tell a story").click()
    wait_until(lambda: drafts.page.evaluate(count, "turns") == 0)  # what is not written yet, a reload may break off
    drafts.page.reload()
    wait_until(lambda: drafts.page.evaluate(count, "passes") == 0)


# ---- the proof ----


def test_the_proof_says_identical(drafts: Tab) -> None:
    drafts.page.select_option("#switch-draft", "tree")
    first = asked(drafts, "tell a story")
    finished(drafts)
    drafts.page.select_option("#switch-draft", "chain")  # the proof is of what was asked then
    with drafts.page.expect_request("**/v1/chat/completions") as request:
        drafts.button("Prove it").click()
    second = request.value.post_data_json
    assert second == {**first, "draft": "off"}
    dialog = drafts.page.locator(".proof-dialog")
    expect(dialog.locator(".verdict")).to_contain_text("Identical.")
    n_tokens = sum(map(len, DraftedNative.words.passes(STORY))) - 1
    expect(dialog.locator(".verdict")).to_contain_text(f"{n_tokens} tokens")
    clocks = [float(text.removesuffix(" s")) for text in dialog.locator(".clock").all_inner_texts()]
    assert 0 < clocks[0] < clocks[1]
    shown = re.findall(r"([\d.]+) s with drafts, ([\d.]+) s plain; ([\d.]+)×", dialog.locator(".verdict").inner_text())
    assert [float(text) for text in shown[0][:2]] == clocks
    assert float(shown[0][2]) == pytest.approx(clocks[1] / clocks[0], rel=0.02)
    assert dialog.locator(".proof-text").all_text_contents() == [STORY, STORY]
    drafts.button("Close").click()
    expect(drafts.answers().locator(".figures")).to_contain_text("as plain,")
    drafts.page.reload()
    expect(drafts.answers().locator(".figures")).to_contain_text("as plain,")


@pytest.mark.parametrize("reason", ["", "the GPU's sums depend on the rows"])
def test_the_proof_shows_the_first_difference(open_tab: OpenTab, reason: str) -> None:
    with serve(info={"not_bit_exact": reason}) as served:
        tab = open_tab(served.url)
        tab.button("Show drafts").click()
        tab.ask("tell a story")
        finished(tab)
        served.native.plain_script = DraftedNative.words.passes(STORY.replace("and guesses", "or guesses"))
        tab.button("Prove it").click()
        verdict = tab.page.locator(".verdict")
        expect(verdict).to_contain_text("Not the same.")
        expect(verdict).to_contain_text("from character 26")
        expect(verdict.locator("dd").first).to_contain_text("A small model runs ahead·and guesses")
        expect(verdict.locator("ins").first).to_contain_text("and guesses")
        expect(verdict.locator("ins").last).to_contain_text("or guesses")
        told = f"The server promises none here: {reason}." if reason else "The server names no reason for it."
        expect(verdict).to_contain_text(told)


def test_both_clocks_run_and_the_proof_can_be_left(drafts: Tab, served: Served) -> None:
    drafts.ask("tell a story")
    finished(drafts)
    served.pace.hold()
    drafts.button("Prove it").click()
    served.pace.release(5)
    dialog = drafts.page.locator(".proof-dialog")
    sides = dialog.locator(".side")
    expect(sides.first.locator(".token")).not_to_have_count(0)
    expect(sides.last.locator(".token")).to_have_count(5)
    expect(sides.first).to_have_class(re.compile("done"))  # its times are over, the plain answer waits
    cancelled = len(served.native.cancelled)
    with drafts.page.expect_response(lambda response: response.request.method == "DELETE"):
        drafts.button("Close").click()
    served.pace.free()  # the engine hears of it between two passes
    wait_until(lambda: len(served.native.cancelled) > cancelled)
    expect(drafts.answers().locator(".figures")).not_to_contain_text("plain,")


def test_a_stopped_answer_is_compared_as_far_as_it_went(drafts: Tab, served: Served) -> None:
    served.pace.hold()
    drafts.ask("tell a story")
    served.pace.release(6)
    drafts.sees("large")
    drafts.button("Stop").click()
    served.pace.free()
    drafts.button("Prove it").click()
    expect(drafts.page.locator(".verdict")).to_contain_text("Identical.")


# ---- everyone can use it ----


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(open_tab: OpenTab, served: Served, scheme: str) -> None:
    """axe finds nothing with drafts shown: while they come, at the end, in a tree, in a proof, on a phone."""
    tab = open_tab(served.url, color_scheme=scheme, reduced_motion="reduce")
    tab.button("Show drafts").click()
    expect(tab.page.locator("#switch-draft")).to_be_visible()
    served.pace.hold()
    tab.ask("show drafts")
    served.pace.release(4)
    expect(tab.answers().locator(".guess .refused")).not_to_have_count(0)
    assert faults(tab.page) == []
    served.pace.free()
    finished(tab)
    tab.answers().locator(".token.draft.d5").first.click()
    assert faults(tab.page) == []
    for size in ({"width": 1200, "height": 820}, {"width": 360, "height": 740}):
        tab.page.set_viewport_size(size)
        assert faults(tab.page) == []
        tree_at(tab, 3)
        assert faults(tab.page) == []
        tab.button("Close").click()
        tab.button("Prove it").click()
        expect(tab.page.locator(".verdict")).to_contain_text("Identical.")
        assert faults(tab.page) == []
        tab.button("Close").click()


def test_a_phones_width(open_tab: OpenTab, served: Served) -> None:
    tab = open_tab(served.url, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    tab.button("Show drafts").tap()
    tab.ask("show drafts")
    finished(tab)
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 360
    tab.answers().locator(".token.draft.d2").first.tap()
    tip = tab.answers().locator(".token-tip")
    expect(tip).to_contain_text("at depth 2")
    box = tip.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    tip.get_by_role("button", name="Show its tree").tap()
    dialog = tab.page.locator(".tree-dialog")
    expect(dialog.locator(".tree")).to_be_visible()
    assert dialog.locator(".tree-box").evaluate("(box) => box.clientWidth") < 360
    assert dialog.evaluate("(dialog) => dialog.scrollWidth") <= 360
