"""The machine page in a browser: what it shows, and that it goes on by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from dflash_local.engine import Engine
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.page.conftest import GONE, OpenTab, Served, Tab, faults, serve
from tests.patience import wait_until
from tests.server.live import live
from tests.server.test_router import folder, model, routing  # noqa: F401

MIB = 1 << 20
INFO: dict[str, Any] = {
    "target": {
        "arch": "qwen3", "ftype": "Q4_0", "n_params": 418_000_000, "size": 232 * MIB, "n_layer": 28, "n_embd": 1024,
        "n_vocab": 258, "n_ctx_train": 4096,
    },
    "drafter": {
        "arch": "dflash", "ftype": "Q8_0", "n_params": 66_000_000, "size": 36 * MIB, "n_layer": 5, "kind": "dflash",
        "block_size": 16, "top_k": 8, "lattice": False, "target_layers": [8, 18, 27], "draft_ctx": 2048,
        "no_draft": "",
    },
    "memory": {
        "target": 232 * MIB, "drafter": 36 * MIB, "context": 224 * MIB, "drafter_context": 170 * MIB,
        "compute": 32 * MIB,
    },
}  # fmt: skip
CARDS = ("throughput", "slots", "costs", "pair", "devices", "memory", "choices")


@pytest.fixture(scope="module")
def machine() -> Iterator[Served]:
    with serve(info=INFO) as served:
        served.live.engine.submit([*b"user: count\n"]).result()
        yield served
        served.pace.free()


@pytest.fixture
def tab(open_tab: Any, machine: Served) -> Iterator[Tab]:
    yield open_machine(open_tab, machine.url)
    machine.pace.free()


def open_machine(open_tab: OpenTab, url: str, **options: Any) -> Tab:
    tab = open_tab(url + "/", **options)
    tab.page.goto(url + "/#machine")
    expect(tab.page.locator(".machine")).to_be_visible()
    return tab


def card(tab: Tab, name: str) -> Any:
    return tab.page.locator(f"[data-card={name}]")


def looks(tab: Tab) -> int:
    """How often the page asked."""
    return sum("/machine?" in url for url in tab.urls)


# ---- what is shown ----


def test_every_card(tab: Tab) -> None:
    expect(tab.page.locator(".head h1")).to_have_text("This machine")
    for name in CARDS:
        expect(card(tab, name)).to_be_visible()
    expect(card(tab, "pair")).to_contain_text("Q4_0, 232 MiB")
    expect(card(tab, "pair")).to_contain_text("drafter (dflash)")
    expect(card(tab, "pair").locator(".taps g.plot-2")).to_have_count(3)
    expect(card(tab, "pair").locator(".taps g")).to_have_count(28)
    expect(card(tab, "memory").locator("header")).to_contain_text("694 MiB")
    expect(card(tab, "memory").locator(".parts tr")).to_have_count(6)
    expect(card(tab, "choices")).to_contain_text("drafting pays")
    expect(card(tab, "choices")).to_contain_text("250 tokens a second from drafted steps, 125 from one slot without")
    expect(card(tab, "devices")).to_contain_text("cores")
    expect(card(tab, "throughput")).to_contain_text("draft tokens accepted")


def test_the_curve_and_its_roofline(tab: Tab) -> None:
    costs = card(tab, "costs")
    expect(costs).to_contain_text("A pass of few rows takes about 8.00 ms, whatever their number")
    expect(costs).to_contain_text("Only from about 8 rows on does computing them take longer, 1.00 ms a row.")
    expect(costs).to_contain_text(
        "One row: 232 MiB of weights in 8.00 ms, 30.4 GB/s. 64 rows: 64.0 ms, 1,000 rows a second."
    )
    expect(costs.locator("circle.dot").first).to_be_visible()
    expect(costs.locator(".plot svg").first.locator(".plot-1 circle")).to_have_count(7)
    expect(costs.locator(".plot svg").first.locator(".plot-2 circle")).to_have_count(2)
    costs.locator("summary").click()
    expect(costs.locator("tbody tr").filter(has_text=re.compile("^16"))).to_have_text("1616.0" + "16.0")
    # Trees of the script have five nodes.
    expect(costs.locator("tbody tr").filter(has_text=re.compile("^5")).locator("td").last).not_to_be_empty()


def test_the_place_of_the_pointer_is_read(tab: Tab) -> None:
    plot = card(tab, "costs").locator(".plot").first
    expect(plot.locator("circle").first).to_be_visible()
    plot.locator(".plot-1 circle").nth(4).hover()
    expect(plot.locator(".readout")).to_contain_text("16 rows: 16.0 ms")
    expect(plot.locator(".readout")).to_contain_text("1.00 ms a row")
    tab.page.mouse.move(0, 0)
    expect(plot.locator(".readout")).to_have_count(0)


# ---- by itself ----


def test_it_follows_what_runs(tab: Tab, machine: Served) -> None:
    slots = card(tab, "slots")
    expect(slots.locator("li")).to_have_count(4)
    expect(slots.locator(".writing")).to_have_count(0)
    machine.pace.hold()
    generation = machine.live.engine.submit([*b"user: count\n"], max_tokens=101)
    machine.pace.release(3)
    expect(slots.locator(".writing")).to_contain_text("9 of at most 101 tokens written")
    expect(card(tab, "throughput").locator(".headline")).to_contain_text("1 request runs")
    total = machine.live.engine.throughput.total.tokens
    expect(card(tab, "throughput")).to_contain_text(f"In all {total} tokens")
    machine.pace.free()
    generation.result()
    expect(slots.locator(".writing")).to_have_count(0)
    expect(card(tab, "throughput")).to_contain_text(f"In all {total + 92} tokens")


def test_it_asks_only_while_somebody_looks(tab: Tab) -> None:
    expect(card(tab, "slots")).to_be_visible()
    wait_until(lambda: bool(tab.page.wait_for_timeout(100)) or looks(tab) >= 2)
    hide = "(is) => { Object.defineProperty(document, 'hidden', {value: is, configurable: true});"
    hide += "document.dispatchEvent(new Event('visibilitychange')); }"
    tab.page.evaluate(hide, True)
    tab.page.wait_for_timeout(2000)  # what was begun ends
    before = looks(tab)
    tab.page.wait_for_timeout(3000)
    assert looks(tab) == before
    tab.page.evaluate(hide, False)
    wait_until(lambda: bool(tab.page.wait_for_timeout(50)) or looks(tab) > before)
    tab.button("New chat").first.click()
    tab.page.wait_for_timeout(2000)  # what was begun ends
    before = looks(tab)
    tab.page.wait_for_timeout(3000)
    assert looks(tab) == before
    # It asks for what is new alone.
    assert any(re.search(r"since=[1-9]", url) for url in tab.urls) or looks(tab) < 3


# ---- to it and back ----


def test_from_the_sidebar_and_back(open_tab: OpenTab, machine: Served) -> None:
    tab = open_tab(machine.url)
    tab.ask("show all")
    tab.done()
    tab.page.fill("#message", "half a question")
    tab.button("This machine").click()
    expect(card(tab, "slots")).to_be_visible()
    expect(tab.page.locator(".composer")).to_be_hidden()
    assert tab.page.url.endswith("#machine")
    tab.page.go_back()
    expect(tab.answers()).to_be_visible()
    assert tab.page.input_value("#message") == "half a question"
    tab.page.keyboard.press("Alt+m")
    expect(card(tab, "slots")).to_be_visible()
    tab.page.reload()
    expect(card(tab, "slots")).to_be_visible()
    tab.page.locator(".conversations .title").first.click()
    expect(tab.answers()).to_be_visible()
    assert "#" not in tab.page.url


def test_on_a_phone(open_tab: OpenTab, machine: Served) -> None:
    tab = open_machine(open_tab, machine.url, viewport={"width": 360, "height": 700}, has_touch=True, is_mobile=True)
    expect(card(tab, "choices")).to_be_visible()
    for place in ("document.scrollingElement", "document.querySelector('.machine')"):
        assert tab.page.evaluate(f"{place}.scrollWidth <= {place}.clientWidth")
    tab.button("Conversations").click()
    tab.button("This machine").click()
    expect(tab.page.locator(".sidebar")).to_have_count(0)


# ---- what a server may not tell ----


@pytest.mark.parametrize(
    ("settings", "text", "absent"),
    [
        (Settings(slots_endpoint=False), "--no-slots", ["slots"]),
        (Settings(metrics_endpoint=False), "--no-metrics", ["throughput", "choices"]),
    ],
)
def test_what_is_switched_off(open_tab: OpenTab, settings: Settings, text: str, absent: list[str]) -> None:
    with serve(settings, info=INFO) as served:
        tab = open_machine(open_tab, served.url)
        expect(tab.page.locator(".machine .state")).to_contain_text(text)
        for name in CARDS:
            expect(card(tab, name)).to_have_count(0 if name in absent else 1)


def test_a_model_that_sleeps(open_tab: OpenTab) -> None:
    with live(lambda _: Engine.over(FakeNative(info=INFO)), Settings(sleep_idle_seconds=0.1)) as server:
        tab = open_machine(open_tab, server.url)
        expect(tab.page.locator(".machine .state")).to_contain_text("The model sleeps")
        expect(card(tab, "pair")).to_be_visible()
        assert server.service.life.sleep.is_sleeping


def test_a_router_is_not_made_to_load(open_tab: OpenTab, folder: Path) -> None:  # noqa: F811
    with routing(folder, model("m"), model("n")) as server:
        tab = open_machine(open_tab, server.url)
        expect(tab.page.locator(".machine")).to_contain_text("the first question to it loads it")
        expect(tab.page.locator(".machine")).to_contain_text("cores")
        assert {one["status"] for one in server.http.get("/machine").json()["models"]} == {"unloaded"}


def test_a_server_that_is_gone(open_tab: OpenTab) -> None:
    with serve(info=INFO) as served:
        tab = open_machine(open_tab, served.url)
        expect(card(tab, "slots")).to_be_visible()
    tab.expected = GONE
    expect(tab.page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(tab.page.locator(".absence")).to_contain_text("The server is away.")
    expect(card(tab, "slots")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(open_tab: OpenTab, machine: Served, scheme: str) -> None:
    """axe finds nothing, on a desktop and on a phone, with the tables open."""
    tab = open_machine(open_tab, machine.url, color_scheme=scheme, reduced_motion="reduce")
    for name in ("costs", "throughput"):
        card(tab, name).locator("summary").click()
    for size in ({"width": 1200, "height": 820}, {"width": 360, "height": 700}):
        tab.page.set_viewport_size(size)
        tab.page.wait_for_timeout(200)
        assert faults(tab.page) == []


def test_next_token_layers(open_tab: OpenTab) -> None:
    layers = {"name": "MTP layers", "kind": "mtp", "target_layers": [], "block_size": 17}
    drafter = INFO["drafter"] | layers
    with serve(info=INFO | {"drafter": drafter, "drafters": [drafter]}) as served:
        tab = open_machine(open_tab, served.url)
        expect(card(tab, "pair")).to_contain_text("target and MTP layers")
        expect(card(tab, "pair")).to_contain_text("at most 16 tokens")
        expect(card(tab, "pair").locator(".taps")).to_have_count(0)
        tab.page.goto(served.url + "/#")
        expect(tab.page.locator(".welcome")).to_contain_text("drafted by MTP layers")
