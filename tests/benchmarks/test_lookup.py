"""The benchmark of prompt lookup: who is compared, and what its table says."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import lookup, real_models
from benchmarks.http_load import Answer
from benchmarks.systems import OURS, PLAIN


def test_ours_is_compared_by_kind_of_prompt() -> None:
    seconds = {PLAIN: 4.0, "upstream ngram-mod": 2.0, lookup.OURS_OFF: 1.25, OURS: 1.0}
    answers = {
        name: [[Answer("text", 9, 101, "length", of, 0.1, of * slower, 50) for slower in (1, 10)]]
        for name, of in seconds.items()
    }
    edit, chat = lookup.rows("Model", 0.8, answers, ["edit", "chat"], [])
    assert (edit["model"], edit["kind"], edit["temperature"]) == ("Model", "edit", 0.8)
    assert edit["over"] == {PLAIN: [4.0], "upstream": [2.0], lookup.OURS_OFF: [1.25]} and chat["speeds"][PLAIN] == [2.5]
    head, _, line, *_ = lookup.markdown([edit, chat], "Here.").splitlines()
    assert head.startswith("| model | kind | temperature | plain |") and line.startswith("| Model | edit | 0.8 | 25 |")


def test_another_project_is_compared_by_its_best(tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.touch()
    name, path = real_models.peer_bin(f"ik={server}")
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=PATH of a server"):
        real_models.peer_bin("ik=nowhere")
    argvs = lookup.commands(Path("model.gguf"), Path("bins"), 2, {name: path}, real_models.peer_flags("smollm2"))
    assert argvs["ik plain"][0] == str(server) and argvs["ik plain"][-3:] == ["-rtr", "-ub", "31"]
    assert real_models.peer_flags("qwen2.5-coder") == ["-rtr"]
    assert argvs["ik suffix"][: len(argvs["ik plain"])] == argvs["ik plain"]
    assert {"upstream ngram-map-k", "upstream ngram-cache", PLAIN, OURS} < argvs.keys()
