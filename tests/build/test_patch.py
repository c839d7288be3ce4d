"""Patches apply exactly or not at all."""

from __future__ import annotations

import difflib
import random
from pathlib import Path

import pytest

from dflash_local.build import patch
from dflash_local.errors import BuildError


def write(folder: Path, text: str) -> Path:
    file = folder / "0007-x.patch"
    file.write_text(text)
    return file


def diff(old: str, new: str, context: int = 3) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a/f.c", "b/f.c", n=context)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


@pytest.mark.parametrize("seed", range(40))
def test_random_edits_come_out_as_diffed(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    old = [f"line {rng.randrange(9)}\n" for _ in range(rng.randrange(1, 60))]
    new = [line for line in old if rng.random() > 0.1]
    for _ in range(rng.randrange(1, 6)):
        new.insert(rng.randrange(len(new) + 1), f"new {rng.randrange(9)}\n")
    before, after = ("".join(lines).removesuffix("\n" if rng.random() < 0.3 else "") for lines in (old, new))
    (tmp_path / "f.c").write_text(before)
    patch.apply(write(tmp_path, diff(before, after, context=rng.choice([0, 1, 3]))), tmp_path)
    assert (tmp_path / "f.c").read_text() == after


def test_moved_text_is_found_but_changed_text_is_not(tmp_path: Path) -> None:
    old = "".join(f"{i}\n" for i in range(20))
    text = diff(old, old.replace("10\n", "ten\n"))
    (tmp_path / "f.c").write_text("above\n" * 5 + old)
    patch.apply(write(tmp_path, text), tmp_path)
    assert (tmp_path / "f.c").read_text() == "above\n" * 5 + old.replace("10\n", "ten\n")
    (tmp_path / "f.c").write_text(old.replace("9\n", "nine\n"))
    with pytest.raises(BuildError, match=r"0007-x.patch does not apply: f.c:8: the lines there differ"):
        patch.apply(write(tmp_path, text), tmp_path)


def test_creates_and_deletes(tmp_path: Path) -> None:
    (tmp_path / "old.c").write_text("x\n")
    text = "--- /dev/null\n+++ b/deep/new.c\n@@ -0,0 +1,2 @@\n+a\n+b\n--- a/old.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert patch.apply(write(tmp_path, text), tmp_path) == ["deep/new.c", "old.c"]
    assert (tmp_path / "deep" / "new.c").read_text() == "a\nb\n"
    assert not (tmp_path / "old.c").exists()
    with pytest.raises(BuildError, match=r"deep/new.c exists already"):
        patch.apply(write(tmp_path, text), tmp_path)


def test_all_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "good.c").write_text("x\n")
    (tmp_path / "bad.c").write_text("other\n")
    text = "--- a/good.c\n+++ b/good.c\n@@ -1 +1 @@\n-x\n+y\n--- a/bad.c\n+++ b/bad.c\n@@ -1 +1 @@\n-x\n+y\n"
    with pytest.raises(BuildError, match=r"bad.c:1"):
        patch.apply(write(tmp_path, text), tmp_path)
    assert (tmp_path / "good.c").read_text() == "x\n"


def test_bytes_that_are_not_utf8_and_odd_line_ends_survive(tmp_path: Path) -> None:
    (tmp_path / "f.c").write_bytes(b"\xff\x0c\r\nx\n")
    patch.apply(write(tmp_path, "--- a/f.c\n+++ b/f.c\n@@ -2 +2 @@\n-x\n+y\n"), tmp_path)
    assert (tmp_path / "f.c").read_bytes() == b"\xff\x0c\r\ny\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no unified diff"),
        ("just words\n", "holds no unified diff"),
        ("@@ -1 +1 @@\n-x\n+y\n", "a hunk before any"),
        ("--- a/f.c\n+++ b/f.c\n@@ -1,3 +1,3 @@\n-x\n+y\n", "ends too early"),
        ("--- a/f.c\n+++ b/f.c\n@@ -1,2 +1,2 @@\n-x\n+y\n?z\n", "ends too early"),
        ("diff --git a/f.c b/g.c\nrename from f.c\nrename to g.c\n", "'rename from f.c' is not supported"),
        ("--- a/../f.c\n+++ b/../f.c\n@@ -1 +1 @@\n-x\n+y\n", "bad path"),
        ("--- a//f.c\n+++ b//f.c\n@@ -1 +1 @@\n-x\n+y\n", "bad path"),
    ],
)
def test_what_is_no_patch_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f.c").write_text("x\n")
    with pytest.raises(BuildError, match=message) as caught:
        patch.apply(write(tmp_path, text), tmp_path)
    assert "0007-x.patch" in caught.value.message
    assert (tmp_path / "f.c").read_text() == "x\n"
