"""`dflash-local bench`: the arithmetic on hand-made runs, and a whole measurement over a scripted engine."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from dflash_local import native
from dflash_local.bench import DRAFTED, PLAIN, Results, Run, Summary, choices_md, measure, read_prompts
from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.native import PreparedRequest
from dflash_local.sampling import SamplingParams
from dflash_local.stats import EngineStats
from tests.fake_native import EOG, FakeNative, FakePrepared

ANSWER = b"the same words"


class DraftingNative(FakeNative):
    """Says ANSWER one token a pass at budget 1, and five tokens a pass otherwise."""

    def info(self) -> dict[str, Any]:
        info = super().info()
        info["target"]["description"] = "fake Q4_0"
        return info | {"drafter": {"kind": "dflash"}}

    def submit(self, slot: int, request: PreparedRequest) -> None:
        assert isinstance(request, FakePrepared)
        assert not request.params["cache_prompt"]
        super().submit(slot, request)
        width = 1 if request.params["budget"] == 1 else 5
        passes = [list(ANSWER[:1])] + [list(ANSWER[at : at + width]) for at in range(1, len(ANSWER), width)]
        self._slots[slot].passes = [*passes[:-1], [*passes[-1], EOG]]


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library_info", lambda: {"llama": "0.0", "backends": ["CPU"]})


def run(
    text: str = "x", steps: int = 10, generate: float = 1.0, ttft: float = 0.1, lengths: tuple[int, ...] = (4, 4, 2)
) -> Run:
    return Run(text, steps, generate, ttft, 9, lengths)


def test_summary() -> None:
    repeats = [
        [run(), run(generate=3.0, ttft=0.3)],
        [run(generate=0.5), run(generate=0.5, lengths=(1, 9))],
        [run(), run()],
    ]
    summary = Summary.of(repeats)
    assert summary.tokens_per_second == 10.0  # of 20 tokens in 4, 1 and 2 seconds
    assert summary.ttft_ms == pytest.approx(100)
    assert summary.al == pytest.approx(60 / 17)
    # 17 passes: all but one accepted something, eleven at least three, one at least eight.
    assert summary.acceptance == pytest.approx([16 / 17, 11 / 17, 11 / 17, *[1 / 17] * 5])


def test_summary_of_answers_that_end_at_once() -> None:
    summary = Summary.of([[run(steps=0, generate=0.0, lengths=())]])
    assert (summary.tokens_per_second, summary.al, summary.acceptance) == (0.0, 0.0, ())


@pytest.mark.usefixtures("no_library")
def test_measure_alternates_and_finds_the_same_answers() -> None:
    fake = DraftingNative()
    with Engine.over(fake) as engine:
        report = measure(
            engine, [{"prompt": "a"}, {"messages": [{"role": "user", "content": "b"}]}], SamplingParams(), 50, repeat=2
        )
    # One warm-up each; then plain, drafted, and the second time the other way round, two prompts each.
    assert [sent["budget"] for sent in fake.submitted] == [1, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    seeds = [json.loads(sent["sampling"])["seed"] for sent in fake.submitted]
    assert seeds[2:] == [1, 2] * 4
    assert report.same == report.n_prompts == 2
    assert report.summaries[PLAIN].al == 1.0
    assert report.summaries[DRAFTED].al == pytest.approx(13 / 3)
    assert report.summaries[DRAFTED].acceptance == pytest.approx([1, 1, 2 / 3, 2 / 3])  # passes of 5, 5 and 3 tokens
    assert report.speedup > 1.5


@pytest.mark.usefixtures("no_library")
def test_without_drafter_only_plain_is_measured() -> None:
    with Engine.over(FakeNative()) as engine:
        engine.info["target"]["description"] = "fake"
        report = measure(engine, [{"prompt": "a"}], SamplingParams(), 50, repeat=1)
    assert list(report.summaries) == [PLAIN] and report.speedup == 0.0
    assert "plain" in report.to_md() and "drafted" not in report.to_md()


@pytest.mark.usefixtures("no_library")
def test_formats_agree() -> None:
    with Engine.over(DraftingNative()) as engine:
        report = measure(engine, [{"prompt": "a"}], SamplingParams(), 50, repeat=1)
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    data = json.loads(report.to_json())
    assert [row["decoding"] for row in rows] == [PLAIN, DRAFTED]
    assert float(rows[1]["speedup"]) == pytest.approx(data["speedup"], abs=1e-3)
    assert f"| {data['speedup']:.2f} |" in report.to_md()
    assert data["same_answers"] == 1 and data["drafted"]["drafted"] == 12
    assert data["engine"]["drafted"]["nodes"] == {"5": 3}  # the warm-up is not counted


@pytest.mark.usefixtures("no_library")
def test_what_the_controller_chose_is_told() -> None:
    trace = io.StringIO()
    with Engine.over(DraftingNative()) as engine:
        text = measure(engine, [{"prompt": "a"}] * 2, SamplingParams(), 50, repeat=2, trace=trace).to_md()
    assert "| nodes of a tree | 5 |" in text and "| passes | 12 |" in text
    assert "| block length | 8 |" in text
    assert "| drafting pays | 12 (100%) |" in text
    assert "| share | 1.0% | 70.0% | 4.0% | 1.0% | 20.0% | 2.0% | 2.0% |" in text
    assert "compute graphs reused: target 100.0%; compute graphs reused: drafter 100.0%" in text
    steps = [json.loads(line) for line in trace.getvalue().splitlines()]
    assert [(step["repeat"], step["prompt"], step["step"], step["n_tokens"]) for step in steps[:4]] == [
        (0, 0, 0, 5), (0, 0, 1, 5), (0, 0, 2, 3), (0, 1, 0, 5),
    ]  # fmt: skip
    assert len(steps) == 12 and all(step["n_nodes"] == 5 and step["reason"] == "drafting pays" for step in steps)


def test_stats_keep_what_is_unknown_apart_from_zero() -> None:
    whole = EngineStats.of(FakeNative().stats())
    assert (whole.nodes, whole.reuse(), whole.phase_shares()) == ({}, {}, {})  # known, and nothing has run
    old = EngineStats.of({"steps": 2, "t_verify_ms": 3.0, "graphs_reused_target": 1})
    assert (old.nodes, old.lookup, old.reuse(), old.phase_shares()) == (None, None, {}, {})
    assert old.phase_ms == {"verify": 3.0}
    assert (whole + old).nodes is None and (whole - whole).lookup == {}
    assert list(choices_md(old)) == []


def test_report_speedup_needs_both() -> None:
    summary = Summary.of([[run()]])
    assert Results({}, {PLAIN: summary}, 1, 1).speedup == 0.0
    assert Results({}, {PLAIN: summary, DRAFTED: Summary.of([[run(generate=0.25)]])}, 1, 1).speedup == 4.0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_prompt_files(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    text = '{"prompt": "raw"}\n\nplain text\n{"messages": [{"role": "user", "content": "x"}]}\n'
    path.write_text(text, encoding=encoding)
    assert read_prompts(path) == [
        {"prompt": "raw"},
        {"messages": [{"role": "user", "content": "plain text"}]},
        {"messages": [{"role": "user", "content": "x"}]},
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no prompts"),
        (b'{"messages": ', "line 1"),
        (b'ok\n{"text": "x"}', "line 2"),
        (b'{"prompt": 7}', "line 1"),
        (b"\xff", "cannot read"),
    ],
)
def test_bad_prompt_files_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=said) as caught:
        read_prompts(path)
    assert caught.value.param == "prompts"


def test_a_missing_prompt_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot read"):
        read_prompts(tmp_path / "none")
