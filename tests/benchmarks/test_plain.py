"""The benchmark of plain decoding: who takes part, and what its table says."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import plain
from benchmarks.systems import OURS, PLAIN


def test_every_setting_of_another_server_takes_part_and_nobody_drafts() -> None:
    argvs = plain.commands(Path("model.gguf"), Path("bins"), 2, {"ik": Path("server")})
    assert list(argvs) == [PLAIN, "ik", "ik -rtr", OURS]
    assert argvs["ik -rtr"] == [*argvs["ik"], "-rtr"] and argvs["ik"][0] == "server"
    assert argvs[OURS][-2:] == ["--lookup", "off"]
    assert not any("-md" in argv or "--spec-type" in argv for argv in argvs.values())


@pytest.mark.parametrize("text", ["0.6b", "0.6b/", "q4_0", "35b/q4_0", "0.6b/q9"])
def test_a_target_has_a_shape_and_a_type(text: str) -> None:
    assert plain.target("0.6b/q4_0") == ("0.6b", "q4_0")
    with pytest.raises(argparse.ArgumentTypeError, match="must be SHAPE/TYPE"):
        plain.target(text)


def test_the_verdict_is_over_the_best() -> None:
    speeds = {PLAIN: [9.0, 10.0, 50.0], "ik": [8.0, 8.0, 8.0], "ik -rtr": [20.0, 20.0, 20.0]}
    held = plain.row("Model", {**speeds, OURS: [1.0, 22.0, 30.0]}, 2 * 10**9, [50.0, 48.0, 40.0])
    assert held["ratios"] == {PLAIN: 2.2, "ik": 2.75, "ik -rtr": 1.1} and held["held"]
    missed = plain.row("Model", {**speeds, OURS: [21.0, 21.0, 21.0]}, 10**9, [30.0])
    assert not missed["held"]
    lines = plain.markdown([held, missed], "Here.").splitlines()
    assert lines[2] == "| Model | 10.0 | 8.0 | 20.0 | 22.0 | 2.20 | 2.75 | 1.10 | held | 44 | 48 (40-50) |"
    assert lines[3].endswith("| 1.05 | MISSED | 21 | 30 (30-30) |")
