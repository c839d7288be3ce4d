"""Long prompts: what is asked, what is counted, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import long_context as benchmark
from benchmarks.http_load import Answer, LoadError, LoadResult
from benchmarks.long_context import FIRST, N_GRAMS, ROOT, TASKS, files, markdown, measure, row
from benchmarks.lookup import OURS_OFF
from benchmarks.systems import OURS, PLAIN, Systems
from dflash_local import native

SPEED = {PLAIN: 10.0, N_GRAMS: 20.0, OURS_OFF: 12.5, OURS: 40.0}


class Scripted:
    """Systems that answer 101 tokens at once, and claim the time of SPEED; the first prompt of a text takes a second
    more."""

    names = tuple(SPEED)

    def __init__(self) -> None:
        self.bodies: dict[str, list[dict[str, Any]]] = {name: [] for name in SPEED}

    def turn(self, name: str, bodies: Sequence[dict[str, Any]]) -> LoadResult:
        (body,) = bodies
        task = sum(words in body["messages"][0]["content"] for words in list(TASKS.values())[:1])
        self.bodies[name].append(body)
        ttft = 100 / SPEED[name] if task else 0.1
        return LoadResult(1.0, (Answer("text", 9, 101, "length", 1.0, ttft, 100 / SPEED[name], passes=100),))


def test_each_text_is_read_once_and_asked_about_twice() -> None:
    systems = Scripted()
    found = measure(cast(Systems, systems), "the files", 50, 3)
    for name, bodies in systems.bodies.items():
        contents = [body["messages"][0]["content"] for body in bodies]
        beginnings = [content.partition("the files")[0] for content in contents]
        assert len(set(contents)) == 6 and beginnings == [beginnings[i // 2 * 2] for i in range(6)]
        assert len(set(beginnings)) == 3  # another one in each repeat: it is read again
        assert all(body["cache_prompt"] and body["temperature"] == 0 for body in bodies)
        assert found[name] == {"first": [100 / SPEED[name]] * 3, **{task: [SPEED[name]] * 3 for task in TASKS}}


def test_table() -> None:
    found = measure(cast(Systems, Scripted()), "the files", 50, 1)
    r = row("A model", 4000, found)
    assert r["over_best"] == dict.fromkeys(TASKS, pytest.approx(2.0)) and r["first_over_best"] == pytest.approx(0.5)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown([r], "Here.").splitlines()[2:5]]
    assert lines[0] == ["A model", "4000", "first token, s", "10.0", "5.0", "8.0", "2.5", "0.50"]
    assert lines[2] == ["", "", "edit, tok/s", "10.0", "20.0", "12.5", "40.0", "2.00"]


def test_files_fill_the_context(pocket: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = files(pocket["target"], 2000)
    with native.vocabulary_of(pocket["target"]) as vocab:
        assert 1900 < len(native.vocab_tokenize(vocab, text, add_special=False, parse_special=False)) <= 2000
    assert text.startswith(f"# {FIRST}\n{(ROOT / FIRST).read_text()[:100]}") and text.endswith("\n")
    short = tmp_path / FIRST
    short.parent.mkdir()
    short.write_text("import os\n")
    monkeypatch.setattr(benchmark, "ROOT", tmp_path)
    with pytest.raises(LoadError, match="too few lines"):
        files(pocket["target"], 2000)
