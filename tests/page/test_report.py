"""The report of `dflash-local bench` in a browser: nothing is asked of the network, nothing is wrong, axe finds
nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_local.report.bench_record import Record
from dflash_local.report.report_page import report_page
from tests.page.conftest import faults
from tests.report.records import record

DESKTOP, PHONE = {"width": 1100, "height": 800}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page(Record.parse(json.dumps(record()), "test")), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_report(browser: Any, report: Path, scheme: str, size: dict[str, int]) -> None:
    context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)  # axe is a script
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(251, 251, 249)", "dark": "rgb(20, 23, 26)"}[scheme]
    assert faults(page) == []
    assert (said, asked) == ([], [report.as_uri()])
    context.close()


def test_report_is_whole_without_scripts_and_network(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("figure svg[role=img]").count() == 6
    assert page.get_by_role("img", name="Tokens per second of each way of decoding").is_visible()
    context.close()
