"""Records of measurements: what they are of, and that a page tells what was recorded, not what is here now."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import record
from dflash_local.build import commit
from dflash_local.machine.hardware import Machine, this_machine
from dflash_local.machine.identity import build_key

ELSEWHERE = Machine("Another CPU", 64, 128, 256 << 30, 0, "Linux 1.0", "3.12", 0.5)
OLD: dict[str, Any] = {"machine": ELSEWHERE.to_json(), "options": {"threads": 2}, "command": "python x.py"}


def test_a_page_tells_the_recorded_machine() -> None:
    new = {**OLD, "devices": ["CUDA0: A card"], "commit": "0123abc", "build": "fedc"}
    told = "Another CPU, 64 cores, 256 GiB, Linux 1.0"
    assert record.footer(new) == f"{told}; CUDA0: A card; 2 threads; commit 0123abc, build fedc. `python x.py`"
    assert record.footer(OLD) == f"{told}; 2 threads; commit not recorded, build not recorded. `python x.py`"
    assert record.footer({**OLD, "options": {"threads": [1, 2]}}).count("; 1, 2 threads; ") == 1
    assert record.place({}) == "not recorded"


@pytest.mark.parametrize("path", sorted(record.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_older_records_stay_readable(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(data, dict) and "command" in data:
        assert str(Machine.from_json(data["machine"])) in record.footer(data)


def test_a_machine_of_an_older_record_is_read() -> None:
    assert Machine.from_json(json.loads(json.dumps(ELSEWHERE.to_json()))) == ELSEWHERE
    assert str(Machine.from_json({"cpu": "X", "colour": "red"})) == "X, 0 cores, 0 GiB, unknown system"


def test_what_is_measured_now_is_named() -> None:
    now = record.origin()
    assert record.origin_words(now)["machine"] == str(this_machine())
    assert now["commit"] == commit.running_commit() and now["build"] == build_key() != ""
    assert record.NOT_RECORDED not in record.origin_words(now).values()


def checkout(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a source and a record, as if it were the running code's."""
    for name in ("dflash_local/a.py", "benchmarks/results/x.json", "docs/x.md", "pyproject.toml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("one")
    monkeypatch.setattr(commit, "PACKAGE", root / "dflash_local")
    return root


def now() -> str:
    commit.running_commit.cache_clear()
    return commit.running_commit()


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    commit.running_commit.cache_clear()


def test_prompts_of_a_file_are_named_in_the_record(tmp_path: Path) -> None:
    found = []
    for text in ("one", "two"):
        (tmp_path / "prompts.jsonl").write_text(text)
        found.append(record.options(argparse.Namespace(prompts=tmp_path / "prompts.jsonl", threads=2)))
    assert found[0] != found[1] and found[0].keys() == {"threads", "prompts_sha256"}


def test_a_git_that_fails_hides_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout(tmp_path, monkeypatch)
    (root / ".git").mkdir()
    answers = {"rev-parse": "a" * 40}
    monkeypatch.setattr(commit, "_git", lambda _, word, *__: answers.get(word))
    assert now().startswith("a" * 40 + "+")
    answers["status"] = " M dflash_local/hub/registry.json"
    assert now().startswith("a" * 40 + "+")
    answers["status"] = " M benchmarks/results/x.json"
    assert now() == "a" * 40


def test_the_commit_is_the_running_code_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout(tmp_path, monkeypatch)
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    head = now()
    assert len(head) == 40 and head == subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    (root / "benchmarks" / "results" / "x.json").write_text("two")  # a run saves its cells
    (root / "benchmarks" / "results" / "y.md").write_text("two")
    (root / "docs" / "x.md").write_text("two")
    assert now() == head
    seen = {head}
    for name, text in (("a.py", "two"), ("a.py", "three"), ("new.py", "")):
        (root / "dflash_local" / name).write_text(text)
        assert now().startswith(f"{head}+")
        seen.add(now())
    assert len(seen) == 4


def test_without_git_the_sources_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout(tmp_path, monkeypatch)
    first = now()
    assert first.startswith("sources ")
    (root / "benchmarks" / "results" / "x.json").write_text("two")
    assert now() == first
    (root / "dflash_local" / "a.py").write_text("two")
    assert now() != first
    (root / "pyproject.toml").unlink()  # installed: the package alone
    second = now()
    (root / "benchmarks" / "more.py").write_text("x")
    assert now() == second not in (first, "")


def test_libraries_that_are_named_are_told_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = build_key()
    (tmp_path / "libdflash.so").write_text("one")
    monkeypatch.setenv("DFLASH_LIBRARY", str(tmp_path / "libdflash.so"))
    first = build_key()
    (tmp_path / "libllama.so").write_text("two")
    assert len({installed, first, build_key()}) == 3
