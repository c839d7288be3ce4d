"""Layers of ggml_ops: what the list says of this checkout, and what is found in folders that break it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .layers import LAYERS, faults
from .native import REPO

FOLDERS = (("engine",), ("draft", "files"), ("base",))


def test_includes_point_down() -> None:
    assert list(faults()) == []


def test_folders_are_those_of_the_table() -> None:
    """docs/architecture.md describes every folder that has a layer, and no other."""
    page = (REPO / "docs" / "architecture.md").read_text()
    table = page[page.index("\nggml_ops/ ") : page.index("\ndflash_local/ ")]
    described = set(re.findall(r"^  (\w+)/", table, re.M)) - {"tests"}
    assert described == {folder for layer in LAYERS for folder in layer}


@pytest.mark.parametrize(
    ("file", "header", "fault"),
    [
        ("engine/step.cpp", "draft/tree.h", None),
        ("draft/cpu/tree.cpp", "draft/tree.h", None),
        ("draft/tree.cpp", "ggml-impl.h", None),
        ("draft/tree.cpp", "common/log.h", None),
        ("tests/test_tree.cpp", "engine/step.h", None),
        ("draft/tree.h", "engine/step.h", "draft/tree.h includes engine/step.h, which is not below it"),
        ("draft/cpu/tree.h", "engine/step.h", "draft/cpu/tree.h includes engine/step.h, which is not below it"),
        ("draft/tree.h", "files/gguf.h", "draft/tree.h includes files/gguf.h, which is not below it"),
        ("other/tree.h", "base/error.h", "other/ has no layer"),
    ],
)
def test_includes(tmp_path: Path, file: str, header: str, fault: str | None) -> None:
    for folder in ("engine", "draft", "files", "base"):
        (tmp_path / folder).mkdir()
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(f'#include <vector>\n#include "{header}"\n')
    assert list(faults(tmp_path, FOLDERS, {})) == ([fault] if fault else [])


def test_names_are_not_shared(tmp_path: Path) -> None:
    for folder in ("engine", "draft", "files", "base"):
        (tmp_path / folder).mkdir()
    for file in ("draft/tree.h", "engine/tree.h", "engine/tree.cpp"):
        (tmp_path / file).touch()
    assert list(faults(tmp_path, FOLDERS, {})) == ["tree.h: 2 files"]


def test_lists_have_no_leftovers(tmp_path: Path) -> None:
    for folder in ("draft", "files", "base"):
        (tmp_path / folder).mkdir()
    assert list(faults(tmp_path, FOLDERS, {"base/a.h": "draft/b.h"})) == [
        "engine/ has a layer, but is not there",
        "base/a.h no longer includes draft/b.h: take it out of KNOWN",
    ]


def test_calls_have_one_owner(tmp_path: Path) -> None:
    for folder in ("engine", "draft", "files", "base"):
        (tmp_path / folder).mkdir()
    (tmp_path / "engine" / "step.cpp").write_text("bool ok = llama_memory_seq_rm(memory, 0, -1, -1);\n")
    (found,) = faults(tmp_path, FOLDERS, {})
    assert found.startswith("engine/step.cpp calls ") and found.endswith("target/memory.cpp alone")
