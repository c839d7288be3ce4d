"""The benchmark of load times: what is counted, and what its table says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import load_time
from benchmarks.load_time import FIRST, UPSTREAM, WARM, Start


def test_the_first_start_of_each_is_not_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun: list[str] = []

    def start(name: str, argv: Sequence[str], bodies: object, logs: Path) -> Start:
        begun.append(name)
        return Start(0.0, float(len(begun)), 0.0)

    monkeypatch.setattr(load_time, "start", start)
    found = load_time.measure({"a": [], "b": []}, [], tmp_path, 2)
    assert begun == ["a", "b", "b", "a", "b", "a"]  # in turns
    assert [one.answered for one in found["a"]] == [4.0, 6.0] and [one.answered for one in found["b"]] == [3.0, 5.0]


def test_the_table_has_medians_and_a_verdict() -> None:
    starts = {
        UPSTREAM: [Start(0.5, 1.0, 1.0), Start(0.6, 2.0, 3.0), Start(0.7, 9.0, 2.0)],
        WARM: [Start(1.0, 2.2, 1.0)] * 3,
        FIRST: [Start(1.0, 3.0, 1.0)] * 3,
    }
    row = load_time.row("Model", starts)
    assert row["seconds"][UPSTREAM] == [0.6, 2.0, 2.0]
    assert (row["warm_over_upstream"], row["first_over_upstream"]) == (1.1, 1.5)
    lines = load_time.markdown([row], "Here.").splitlines()
    assert lines[2] == "| Model | upstream | 0.60 | 2.00 | 2.00 |  |  |"
    assert [line.split(" | ")[-2:] for line in lines[3:5]] == [["1.10", "held |"], ["1.50", "MISSED |"]]


def test_another_installation_is_started_with_the_same_flags() -> None:
    here = load_time.commands(Path("model.gguf"), Path("bin"), 2)
    there = load_time.commands(Path("model.gguf"), Path("bin"), 2, "venv/bin/dflash-local")
    assert there[UPSTREAM] == here[UPSTREAM]
    for name in (WARM, FIRST):
        assert there[name][0] == "venv/bin/dflash-local"
        assert there[name][1:] == here[name][here[name].index("serve") :]
