"""The report of `dflash-local bench`: what stands in it, and that it needs nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dflash_local import cli
from dflash_local.errors import RequestError
from dflash_local.report.bench_record import Record
from dflash_local.report.report_page import report_page
from dflash_local.report.scale import Scale
from tests.report.records import BEGINNINGS, record

VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = (
    "</style></title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202egnp.exe\x00\x1b[31m\ud800 {{ 7*7 }}"
)


class Parsed(HTMLParser):
    """Checks that elements nest, and keeps what is in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # innermost element, text
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data.strip()))


def page_of(data: dict[str, Any]) -> str:
    return report_page(Record.parse(json.dumps(data), "test"))


def cells(page: str, number: int) -> list[list[str]]:
    """The rows of a table of the page, the head among them."""
    table = re.findall(r"<table.*?</table>", page, re.DOTALL)[number]
    rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    return [[_text(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def _text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html)).strip()


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(record())


def test_numbers_are_the_records(page: str) -> None:
    data = record()
    rows = cells(page, 0)[1:]
    assert [row[0] for row in rows] == [
        "llama.cpp",
        "llama.cpp dflash, 7 tokens",
        "dflash-local, plain",
        "dflash-local, drafted",
    ]
    for name, row in zip(data["answers"], rows, strict=True):
        summary = data[name]
        speeds = [
            sum(answer["tokens"] for answer in repeat) / sum(answer["seconds"] for answer in repeat)
            for repeat in data["answers"][name]
        ]
        drafts = name in ("drafted", "upstream dflash, 7 tokens")
        assert row[1:] == [
            f"{summary['tokens_per_second']:.1f}",
            f"{min(speeds):.1f} – {max(speeds):.1f}",
            f"{summary['tokens_per_second'] / data['plain']['tokens_per_second']:.2f}",
            f"{summary['al']:.2f}" if drafts else "–",
            f"{summary['ttft_ms']:.0f}",
            f"{summary['tokens']:,}",
        ]
    tiles = [_text(tile) for tile in re.findall(r'<div class="tile.*?</div>', page, re.DOTALL)]
    assert tiles[0] == f"{data['speedup']:.2f}×the speed of plain decoding"
    over = data["over_baselines"]
    assert tiles[-1] == f"{over['dflash']['ratio']:.2f}×the speed of llama.cpp dflash, 7 tokens"
    assert tiles[-2] == f"{over['none']['ratio']:.2f}×the speed of llama.cpp"


def test_every_answer_is_told(page: str) -> None:
    rows = cells(page, 2)[1:]
    assert len(rows) == 12
    assert rows[0][0] == f"1 {BEGINNINGS[0]}"
    drafted = record()["answers"]["drafted"]
    speeds = ", ".join(f"{repeat[1]['tokens'] / repeat[1]['seconds']:.1f}" for repeat in drafted)
    assert rows[7] == ["dflash-local, drafted", speeds, f"{99 / 20:.2f}"]


def test_reasons(page: str) -> None:
    assert cells(page, 1)[1:] == [["drafting pays", "58", "95.1%"], ["plain decoding is faster", "3", "4.9%"]]


def test_plots_show_the_records_numbers(page: str) -> None:
    data = record()
    tips = re.findall(r"<title>(.*?)</title>", page)
    for name in data["answers"]:
        assert f"{data[name]['tokens_per_second']:.1f} tok/s" in tips
    for depth, share in enumerate(data["drafted"]["acceptance"], 1):
        assert f"{share:.1%} of the passes accepted {depth} or more" in tips
    assert {"1: 12.50 ms", "16: 6.50 ms", "12 nodes: 19 passes", "the drafter's passes: 20.0%"} <= set(tips)


def test_the_longest_bar_is_the_fastest(page: str) -> None:
    speed_plot = re.findall(r"<svg.*?</svg>", page[page.index(">Speed<") :], re.DOTALL)[0]
    widths = [float(width) for width in re.findall(r'<rect x="[^"]*" y="[^"]*" width="([^"]*)"', speed_plot)]
    data = record()
    speeds = sorted((data[name]["tokens_per_second"] for name in data["answers"]), reverse=True)
    assert [width / widths[0] for width in widths] == pytest.approx([speed / speeds[0] for speed in speeds], abs=1e-3)


def test_it_is_html_that_needs_nothing_else(page: str) -> None:
    parsed = Parsed(page)
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "image",
        "use",
        "foreignobject",
    }
    for tag, attributes in parsed.elements:
        assert not [
            name for name in attributes if name in ("src", "href", "srcset", "action", "style") or name.startswith("on")
        ]
        assert tag != "meta" or attributes.get("http-equiv") in (None, "Content-Security-Policy")
    assert "url(" not in page and "@import" not in page and "://" not in page
    assert page.isascii() or '<meta charset="utf-8">' in page


@pytest.mark.parametrize(
    "place",
    ["target_file", "drafter_file", "target", "machine", "command", "llama", "backends", "date", "devices", "commit"],
)
def test_hostile_names_are_text(place: str) -> None:
    page = page_of(record(environment={place: HOSTILE}))
    parsed = Parsed(page)
    assert not {tag for tag, _ in parsed.elements} & {"script", "img"}
    assert "&lt;script&gt;alert(1)" in page and "{{ 7*7 }}" in page
    assert not re.search("[\x00\x1b\u202e\ud800]", page)


def test_hostile_prompts_and_systems_are_text() -> None:
    data = record()
    data["beginnings"][0] = HOSTILE
    for name in (HOSTILE, f"upstream {HOSTILE}"):
        data["answers"][name], data[name] = data["answers"]["upstream"], data["upstream"]
    data["over_baselines"][HOSTILE] = {"best": HOSTILE, "ratio": 2.0}
    data["engine"]["drafted"]["reasons"] = {HOSTILE: 5}
    page = page_of(data)
    parsed = Parsed(page)
    assert not {tag for tag, _ in parsed.elements} & {"script", "img"}
    assert page.count("&lt;script&gt;alert(1)") > 5
    page.encode("utf-8")


def test_the_code_that_was_measured_is_named() -> None:
    data = record()
    page = page_of(data)
    assert all(data["environment"][name] in page for name in ("commit", "build", "devices"))
    assert "not recorded" not in page
    for name in ("commit", "build", "devices"):  # an older record
        del data["environment"][name]
    assert page_of(data).count("not recorded") == 2


def test_without_a_drafter() -> None:
    data = record(("plain",), environment={"drafter": "none", "drafter_file": ""})
    page = page_of(data)
    Parsed(page)
    assert "without a drafter" in page and "Acceptance by depth" not in page
    assert f"{data['plain']['tokens_per_second']:.1f} tokens per second" in page


def test_what_the_library_did_not_tell_is_left_out() -> None:
    data = record(("plain", "drafted"), environment={"llama": None})
    data["engine"], data["costs"] = {"plain": {}, "drafted": {}}, {}
    page = page_of(data)
    assert "Cost of a pass" not in page and "Size of the trees" not in page and "unknown" in page


def test_answers_of_one_token_have_no_speed() -> None:
    data = record(("plain", "drafted"))
    for name in data["answers"]:
        data[name] |= {"tokens_per_second": 0.0, "al": 0.0, "acceptance": []}
        for repeat in data["answers"][name]:
            for answer in repeat:
                answer |= {"tokens": 0, "seconds": 0.0, "passes": 0}
    data["speedup"] = 0.0
    page = page_of(data)
    Parsed(page)
    assert not re.search(r"\b(inf|nan)\b", page)


BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda data: data.pop("answers"), "has no 'answers'"),
    (lambda data: data.pop("drafted"), "no summary"),
    (lambda data: data["environment"].pop("machine"), "environment.machine: Field required"),
    (lambda data: data["plain"].update(tokens_per_second="fast"), "tokens_per_second"),
    (lambda data: data["plain"].update(al=float("inf")), "al: "),
    (lambda data: data["answers"]["plain"][1].pop(), "3 prompts"),
    (lambda data: data["answers"]["plain"].clear(), "3 prompts"),
]


@pytest.mark.parametrize(("spoil", "said"), BAD)
def test_bad_records_are_named(spoil: Callable[[dict[str, Any]], object], said: str) -> None:
    data = record()
    spoil(data)
    with pytest.raises(RequestError, match=said) as caught:
        page_of(data)
    assert caught.value.message.startswith("test is not a record")


def test_the_command_makes_it_of_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "r.json", tmp_path / "r.html"
    assert cli.main(["bench", "--from", str(source), "--report", str(out)]) == 1
    assert "cannot read" in capsys.readouterr().err
    source.write_text(json.dumps(record()))
    assert cli.main(["bench", "--from", str(source)]) == 1
    assert "--report" in capsys.readouterr().err
    assert cli.main(["bench", "--from", str(source), "--report", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == page_of(record())
    source.write_text("[]")
    assert cli.main(["bench", "--from", str(source), "--report", str(out)]) == 1
    assert "is not a record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (61.3, ["0", "20", "40", "60", "80"]),
        (1.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0.9, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (4321, ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]),
        (0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_scales(most: float, ticks: list[str]) -> None:
    scale = Scale(most, 100, 300)
    assert [scale.label(tick) for tick in scale.ticks()] == ticks
    assert (scale.at(0), scale.at(scale.high)) == (100, 300)
    assert scale.high >= most


def test_an_exact_scale_ends_where_its_values_end() -> None:
    scale = Scale(64, 0, 100, 4, exact=True)
    assert scale.ticks() == [0, 20, 40, 60] and scale.at(64) == 100
