"""Patches apply exactly or not at all."""

from __future__ import annotations

import difflib
import json
import random
import re
import tarfile
from pathlib import Path

import pytest

from dflash_local.build import patch
from dflash_local.build.upstream import Upstream, native_source
from dflash_local.cache_dir import cache_dir
from dflash_local.cli import main
from dflash_local.cli.commands import patch as patch_command
from dflash_local.errors import BuildError
from tests.ggml_ops.native import llama_source


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


# ---- dflash-local patch


TEXT = "".join(f"{i}\n" for i in range(40))
# one hunk near the top, one near the end
CHANGED = TEXT.replace("5\n", "five\n", 1).replace("35\n", "more\n35\n")
TWO = diff(TEXT, CHANGED).replace("/f.c", "/vendor/llama.cpp/src/f.c")


def tree(folder: Path, text: str, vendor: str = "vendor/llama.cpp/") -> Path:
    (folder / vendor / "ggml").mkdir(parents=True)
    (folder / vendor / "src").mkdir()
    (folder / vendor / "src" / "f.c").write_text(text)
    return folder


def states(source: Path, patches: list[Path], **options: bool) -> list[tuple[str, int]]:
    _, placements = patch_command.check(source, patches, **options)
    return [(hunk.state, hunk.moved) for hunks in placements.values() for hunk in hunks]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, [("applies", 0), ("applies", 0)]),
        ("above\n" * 3 + TEXT, [("moved", 3), ("moved", 3)]),
        (TEXT.replace("20\n", ""), [("applies", 0), ("moved", -1)]),
        (TEXT.replace("5\n", "five\n", 1), [("applied", 0), ("applies", 0)]),
        (TEXT.replace("35\n", "more\n35\n"), [("applies", 0), ("applied", 0)]),
        (TEXT.replace("6\n", "six\n", 1), [("fails", 0), ("applies", 0)]),
        (TEXT.replace("6\n", "", 1), [("fails", 0), ("moved", -1)]),
    ],
    ids=[
        "as it is",
        "moved down",
        "the second moved up",
        "the first is there",
        "the second is there",
        "changed",
        "cut",
    ],
)
@pytest.mark.parametrize("vendor", ["vendor/llama.cpp/", ""], ids=["llama-cpp-python", "llama.cpp"])
@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_each_hunk_is_placed(
    tmp_path: Path, text: str, expected: list[tuple[str, int]], vendor: str, kind: str
) -> None:
    source = tree(tmp_path / "top", text, vendor)
    if kind == "archive":
        source = tmp_path / "top.tar.gz"
        with tarfile.open(source, "w:gz") as tar:
            tar.add(tmp_path / "top", "top")
    assert states(source, [write(tmp_path, TWO)]) == expected
    assert (tmp_path / "top" / vendor / "src" / "f.c").read_text() == text


def test_apply_writes_what_fits_and_then_it_is_there(tmp_path: Path) -> None:
    source = tree(tmp_path / "top", TEXT.replace("6\n", "six\n", 1))
    file = source / "vendor/llama.cpp/src/f.c"
    assert states(source, [write(tmp_path, TWO)], apply=True) == [("fails", 0), ("applies", 0)]
    assert file.read_text() == TEXT.replace("6\n", "six\n", 1).replace("35\n", "more\n35\n")
    file.write_text(TEXT)
    assert states(source, [write(tmp_path, TWO)], apply=True) == [("applies", 0), ("applies", 0)]
    written = file.read_text()
    assert written == CHANGED
    assert states(source, [write(tmp_path, TWO)], apply=True) == [("applied", 0), ("applied", 0)]
    assert file.read_text() == written


def test_a_tree_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file stands where a folder must be."""
    source = tree(tmp_path / "top", TEXT)
    new = "--- /dev/null\n+++ b/vendor/llama.cpp/src/f.c/new.c\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(BuildError, match=r"f\.c") as error:
        states(source, [write(tmp_path, new)], apply=True)
    assert error.value.hint


def test_a_later_patch_sees_the_one_before(tmp_path: Path) -> None:
    source = tree(tmp_path / "top", TEXT)
    second = tmp_path / "0008-y.patch"
    second.write_text(diff(CHANGED, CHANGED.replace("more\n", "most\n")).replace("/f.c", "/vendor/llama.cpp/src/f.c"))
    assert states(source, [write(tmp_path, TWO), second]) == [("applies", 0)] * 3
    assert states(source, [second]) == [("fails", 0)]


def test_what_fails_is_named_with_line_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "patches").mkdir()
    gone = "--- a/vendor/llama.cpp/src/gone.c\n+++ b/vendor/llama.cpp/src/gone.c\n@@ -1 +1 @@\n-x\n+y\n"
    write(tmp_path / "patches", TWO + gone)
    monkeypatch.setattr(patch_command, "native_source", lambda: tmp_path)
    source = tree(tmp_path / "top", "above\n" + TEXT.replace("6\n", "six\n", 1))
    assert main(["patch", str(source)]) == 1
    out = capsys.readouterr().out
    assert "0007-x                 3 hunks: 1 apply moved, 2 do not apply" in out
    assert "does not apply: src/f.c:3: the lines there differ from the patch (line 8 should be '6')" in out
    assert "moved by +1: src/f.c:33" in out
    assert "does not apply: src/gone.c:1: is not there" in out
    assert main(["patch", str(source), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["hunks"] == {"fails": 2, "moved": 1}
    assert [hunk["line"] for hunk in found["patches"][0]["hunks"]] == [3, 33, 1]


def test_no_source_is_one_error(tmp_path: Path) -> None:
    file = write(tmp_path, TWO)
    with pytest.raises(BuildError, match=r"holds no llama\.cpp"):
        patch_command.check(tmp_path, [file])
    with pytest.raises(BuildError, match="cannot be read"):
        patch_command.check(tmp_path / "missing.tar.gz", [file])
    with pytest.raises(BuildError, match="cannot be read"):
        patch_command.check(file, [file])
    source = tree(tmp_path / "top", TEXT)
    with tarfile.open(tmp_path / "top.tar.gz", "w:gz") as tar:
        tar.add(source, "top")
    with pytest.raises(BuildError, match="is an archive"):
        patch_command.check(tmp_path / "top.tar.gz", [file], apply=True)
    with pytest.raises(BuildError, match="begins with '0009'"):
        patch_command.patch_files(tmp_path, "0009")


# ---- patches/


def test_the_patches_fit_the_pinned_source_as_they_are() -> None:
    pinned = Upstream.read(native_source() / "patches" / "UPSTREAM")
    archive = cache_dir() / "sdist" / pinned.archive_name
    if not archive.is_file():
        pytest.skip("the pinned source is not in the cache")
    assert set(states(archive, patch_command.patch_files(native_source() / "patches"))) == {("applies", 0)}


def test_the_patches_are_hooks() -> None:
    files = patch_command.patch_files(native_source() / "patches")
    rows = (native_source() / "patches" / "README.md").read_text(encoding="utf-8")
    added = []
    for file in files:
        assert f"| [{file.stem}]({file.name}) |" in rows
        for hunk in re.split(r"^@@.*\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            lines = hunk.split("\n--- a/")[0].splitlines()
            changed = [i for i, line in enumerate(lines) if line.startswith(("+", "-"))]
            assert changed[0] <= 2 and len(lines) - 1 - changed[-1] <= 2, f"{file.name}: more than two lines of context"
            added += [line for line in lines if line.startswith("+")]
    assert len(added) <= 630
    assert max(map(len, added)) <= 1 + 120


def test_special_texts_have_a_bracket() -> None:
    """0042 looks for special tokens only among those with one of these, or of the type control."""
    source = (llama_source() / "src" / "llama-vocab.cpp").read_text(encoding="utf-8")
    searched = source[source.index("auto-detect special tokens by text") : source.index("// sanity checks")]
    texts = re.findall(r't\.first == "(.*?)"', searched)
    assert len(texts) > 60 and all(set(text) & set("<[") for text in texts)
    assert len(re.findall(r"for \(const auto & t : special\)", searched)) == 4
