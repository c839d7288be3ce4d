"""The benchmark of prompt lookup: what its table says."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import lookup, real_models
from benchmarks.systems import PLAIN

RECORD = {"options": {"threads": 2}, "command": "python benchmarks/lookup.py"}


def test_ratios_are_of_medians_and_of_the_best() -> None:
    speeds = {
        PLAIN: [10.0, 12.0, 11.0],
        "upstream ngram-mod": [8.0, 8.0, 8.0],
        "upstream ngram-simple": [20.0, 22.0, 24.0],
        lookup.OURS_OFF: [11.0, 11.0, 11.0],
        lookup.OURS: [30.0, 33.0, 36.0],
    }
    row = lookup.row("Model", 0.8, "edit", speeds)
    assert row["best"] == "upstream ngram-simple"
    assert (row["over_plain"], row["over_best"], row["over_off"]) == (3.0, 1.5, 3.0)
    speeds["upstream ngram-simple"] = [9.0]  # plain decoding is upstream's best then
    assert lookup.row("Model", 0.8, "chat", speeds)["over_best"] == 3.0
    assert "ik" not in lookup.markdown({"rows": [row], **RECORD})


def test_another_project_is_compared_by_its_best(tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.touch()
    name, path = real_models.peer_bin(f"ik={server}")
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=PATH of a server"):
        real_models.peer_bin("ik=nowhere")
    argvs = lookup.commands(Path("model.gguf"), Path("bins"), 2, {name: path})
    assert argvs["ik plain"][0] == str(server) and "-rtr" in argvs["ik plain"]
    assert argvs["ik suffix"][: len(argvs["ik plain"])] == argvs["ik plain"]
    speeds = {system: [10.0] for system in argvs} | {"ik suffix": [20.0], lookup.OURS: [30.0]}
    row = lookup.row("Model", 0.0, "edit", speeds, ["ik"])
    assert row["peers"] == {"ik": "ik suffix"} and row["best"].startswith("upstream ")
    head, _, line, *_ = lookup.markdown({"rows": [row], **RECORD}).splitlines()
    assert head.endswith("| ik's best | over ik's best |") and line.endswith("| 20.0 (suffix) | 1.50 |")
