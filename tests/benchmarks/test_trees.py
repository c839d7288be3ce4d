"""Figures from an engine in this process: a small real run of each script, and their arithmetic."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import accept, steps, trees
from benchmarks.answers import acceptance_length
from dflash_local.engine import Completion


def done(*pairs: tuple[int, int]) -> list[Completion]:
    """Answers of so many tokens after the first in so many passes."""
    return [cast(Completion, SimpleNamespace(timings=SimpleNamespace(n_steps=n, n_passes=p))) for n, p in pairs]


def test_acceptance_length_weighs_answers_by_their_passes() -> None:
    assert acceptance_length(done((10, 2), (2, 2))) == 3.0
    assert accept.standard_error(done((10, 2), (20, 4))) == 0.0  # equal lengths: nothing varies
    # Two passes of 5 and of 1: the error of a mean of two, 2 / sqrt(2).
    assert accept.standard_error(done((5, 1), (1, 1))) == pytest.approx(math.sqrt(2))


def read(path: Path) -> Any:
    return json.loads(path.with_suffix(".json").read_text())


def test_trees_beat_chains_of_as_many_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "--limit",
        "3",
        "-n",
        "40",
        "-t",
        "1",
        "--drafters",
        "dflash-small",
        "--budgets",
        "1",
        "32",
        "--temperatures",
        "0",
    ]
    assert trees.main([*argv, "-o", str(tmp_path / "trees")]) == 0
    one, many = read(tmp_path / "trees")["rows"]
    assert one["chain"] == one["tree"] == 1.0
    assert many["tree"] > 1.1 * many["chain"] > 2.0
    assert f"| dflash-small | 0 | tree | 1.00 | {many['tree']:.2f} |" in capsys.readouterr().out


def test_both_accept_rules_are_measured(tmp_path: Path) -> None:
    assert (
        accept.main(
            [
                "--limit",
                "2",
                "--repeats",
                "1",
                "-n",
                "24",
                "-t",
                "1",
                "--temperatures",
                "1",
                "-o",
                str(tmp_path / "accept"),
            ]
        )
        == 0
    )
    (row,) = read(tmp_path / "accept")["rows"]
    assert all(row[rule]["al"] > 1.5 and row[rule]["answers"] == 2 for rule in accept.RULES)


@pytest.mark.slow
def test_steps_account_for_all_time(tmp_path: Path) -> None:
    argv = [
        "--shape",
        "0.1b",
        "--limit",
        "2",
        "-n",
        "60",
        "-t",
        "1",
        "--work",
        str(tmp_path / "work"),
        "-o",
        str(tmp_path / "steps"),
    ]
    assert steps.main(argv) == 0
    found = read(tmp_path / "steps")
    for part in (found["auto"], found["most_nodes"]):
        assert set(part["ms_per_step"]) == {"plan", "verify", "walk", "commit", "draft", "grow", "other"}
        assert part["ms_per_step"]["verify"] == max(part["ms_per_step"].values()) and 0 < part["other_share"] < 0.5
    assert {"1", "8"} <= found["cost"]["at_load"]["verify"].keys() and found["cost"]["kept_fresh"]["draft"]
    assert 50 < sum(step["n_tokens"] for step in found["trace"]) <= 60 and {
        step["reason"] for step in found["trace"]
    } != {""}
