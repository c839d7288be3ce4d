"""The load benchmark: what its requests are, how answers are counted, how growth is read, and a short run."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.load import Mix, Tally, generated

PROMPTS = [{"messages": [{"role": "user", "content": f"question {i}"}]} for i in range(5)]


def test_clients_ask_the_same_again_and_not_each_other_s() -> None:
    mix = Mix(PROMPTS, 7, known=False)
    first, again, other = (list(itertools.islice(mix.draw(seed), 50)) for seed in (1, 1, 2))
    assert first == again != other
    paths = {path for path, _ in first}
    assert {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"} < paths


def test_another_release_is_asked_for_what_it_knows() -> None:
    paths = {path for path, _ in itertools.islice(Mix(PROMPTS, 7, known=True).draw(0), 100)}
    assert paths == {"/v1/chat/completions", "/v1/completions"}


def test_tokens_of_all_owners_shapes() -> None:
    assert generated({"timings": {"predicted_n": 5}, "usage": {"output_tokens": 9}}) == 5
    assert generated({"type": "message_delta", "usage": {"output_tokens": 6}}) == 6
    assert generated({"type": "response.completed", "response": {"usage": {"output_tokens": 7}}}) == 7
    assert generated({"response": None, "usage": None}) == generated({"input_tokens": 12}) == 0


def test_growth_is_what_comes_after_settling() -> None:
    steady = [100] * 10 + [200] * 30
    assert Tally(memory=steady).growth == 0
    assert Tally(memory=[*steady[:20], *range(200, 260)]).growth > 50
    assert Tally(memory=[300]).growth == 0


def test_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "load"
    assert load.main(["--minutes", "0.04", "--clients", "6", "--slots", "2", "-t", "1", "-n", "8", "-o", str(out)]) == 0
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    assert sum(rows[0]["answers"].values()) >= 6
    assert rows[0]["tokens_per_second"][0] > 0
    assert "tok/s" in capsys.readouterr().out
