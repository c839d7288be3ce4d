"""The list of mutants stays true, and the laboratory tells the killed from the survivors and from what proves nothing.
`python -m tests.mutants` tries all of them, which takes too long here."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import __main__ as command
from tests.mutants import laboratory
from tests.mutants.laboratory import Laboratory
from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import Mutant, MutantError


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_each_line_is_there_once(repo: Path, mutant: Mutant) -> None:
    assert mutant.of((repo / mutant.file).read_text(encoding="utf-8"))
    assert all((repo / command.file_of(test)).is_file() for test in mutant.tests)


def test_the_core_is_covered() -> None:
    assert len(MUTANTS) >= 60 and max(Counter(MUTANTS).values()) == 1
    folders = Counter(mutant.file.rpartition("/")[0] for mutant in MUTANTS)
    wanted = ("engine", "budget", "draft", "accept", "llama")
    assert all(folders[folder] >= 3 for folder in [*(f"ggml_ops/{name}" for name in wanted), "dflash_local", "convert"])
    assert sum(mutant.is_native for mutant in MUTANTS) < len(MUTANTS)


TEXT = "def least(a, b):\n    return a if a < b else b\n"
TEST = "import small\ndef test_least():\n    assert small.least(2, 1) == small.least(1, 2) == 1\n"
ENDLESS = "import small\ndef test_least():\n    while small.least(1, 2) == 2: pass\n"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    """A laboratory over a project of one file."""
    project = tmp_path / "project"
    for name, text in {"small.py": TEXT, "test_small.py": TEST, "test_endless.py": ENDLESS, "pytest.ini": ""}.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (project / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    for folder in ("dflash_local", "convert", "server"):
        (project / folder).mkdir()
        (project / folder / "__init__.py").write_text("")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    for module in (laboratory, command):
        monkeypatch.setattr(module, "REPO", project)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # pytest starts in a tenth of the time
    return Laboratory(tmp_path / "laboratory")


def small(before: str, after: str, test: str = "test_small.py") -> Mutant:
    return Mutant("small.py", before, after, (test,))


def test_verdicts(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.copy()
    assert not lab.notices("test_small.py")
    assert lab.verdict(small("a < b", "a > b")) == "test_small.py"
    assert lab.verdict(small("a < b", "a <= b")) == ""
    assert (lab.checkout / "small.py").read_text() == TEXT
    monkeypatch.setattr(laboratory, "TEST_SECONDS", 5.0)  # an endless loop is a kill
    assert lab.verdict(small("a < b", "a > b", "test_endless.py")) == "test_endless.py"


@pytest.mark.parametrize(
    ("mutant", "why"),
    [
        (small("a < c", "a > c"), "there 0 times"),
        (small("a", "b"), "there 4 times"),
        (small("a < b", "a < b"), "no change"),
        (small("a < b", "a <"), "no verdict"),  # it does not compile
        (small("a < b", "a > b", "test_none.py"), "no verdict"),
        (Mutant("none.py", "a", "b", ("test_small.py",)), "is not there"),
    ],
)
def test_what_proves_nothing_is_no_kill(lab: Laboratory, mutant: Mutant, why: str) -> None:
    lab.copy()
    with pytest.raises(MutantError, match=why):
        lab.verdict(mutant)
    assert (lab.checkout / "small.py").read_text() == TEXT


def test_a_run_goes_on_where_it_was(
    lab: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [small("a < b", "a > b"), small("a < b", "a <= b"), small("a < b", "a <")]
    monkeypatch.setattr(command, "MUTANTS", listed)
    folder = ["--folder", str(tmp_path / "laboratory")]
    assert command.main(folder) == 1
    said = capsys.readouterr().out
    assert "3 mutants: 1 killed, 1 survived" in said
    assert f"survived: {listed[1]}" in said and f"proves nothing: {listed[2]}" in said
    monkeypatch.setattr(command, "MUTANTS", listed[:2])
    monkeypatch.setattr(Laboratory, "verdict", lambda *_: pytest.fail("it was tried again"))
    assert command.main(folder) == 0 and "1 survived" in capsys.readouterr().out
    results = json.loads((tmp_path / "laboratory" / "results.json").read_text())
    assert {one["outcome"] for one in results.values()} == {"killed", "survived", "error"}
    assert all(one["commit"] and one["build"] and one["machine"] for one in results.values())
    monkeypatch.setattr(command, "MOST_SURVIVORS", 0)
    assert command.main(folder) == 1


def test_a_test_that_fails_by_itself_is_an_error(
    lab: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (laboratory.REPO / "test_small.py").write_text(TEST.replace("== 1", "== 3"))
    monkeypatch.setattr(command, "MUTANTS", [small("a < b", "a > b")])
    assert command.main(["--folder", str(tmp_path / "laboratory")]) == 1
    assert "test_small.py fails without any mutant" in capsys.readouterr().err
