"""Which files of --lookup-corpus are read, and what is refused or skipped with a line."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from dflash_local import lookup_corpus
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import RequestError
from dflash_local.lookup_corpus import END, MAX_FILE, read_corpus


def characters(text: str) -> Sequence[int]:
    return list(map(ord, text))


def words_of(tokens: array[int]) -> list[str]:
    """The texts that were read."""
    texts = "".join("\0" if token == END else chr(token) for token in tokens).split("\0")
    assert texts.pop() == ""  # each ends
    return texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "b.py").write_text("two")
    (tmp_path / "src" / "deep" / "c.py").write_text("three")
    (tmp_path / "a.txt").write_bytes("\ufeffone é".encode())
    for hidden in (".git", "node_modules", "__pycache__"):
        (tmp_path / hidden).mkdir()
        (tmp_path / hidden / "x.py").write_text("not the user's own")
    (tmp_path / ".hidden").write_text("nor this")
    return tmp_path


def test_files_and_folders(folder: Path) -> None:
    assert words_of(read_corpus([folder], characters)) == ["one é", "two", "three"]
    assert words_of(read_corpus([folder / "src" / "b.py", folder / "a.txt"], characters)) == ["two", "one é"]
    assert words_of(read_corpus([folder / ".hidden"], characters)) == ["nor this"]  # it was named


def test_long_texts_come_in_parts(tmp_path: Path) -> None:
    parts: list[str] = []

    def tokenize(text: str) -> Sequence[int]:
        parts.append(text)
        return characters(text)

    text = "".join(f"line {i}\n" for i in range(20_000)) + "x" * 200_000
    (tmp_path / "long").write_text(text)
    assert words_of(read_corpus([tmp_path / "long"], tokenize)) == [text] and len(parts) > 4
    assert sum(part.endswith("\n") for part in parts) > 2 and max(map(len, parts)) <= 1 << 16


def test_what_is_skipped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "image.bin").write_bytes(b"\x89PNG\0\0")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    with (folder / "huge.txt").open("wb") as huge:
        huge.truncate(MAX_FILE + 1)
    (folder / "src" / "image2.bin").write_bytes(b"\0")
    os.mkfifo(folder / "pipe")
    (folder / "gone").symlink_to(folder / "nowhere")
    (folder / "src" / "loop").symlink_to(folder)
    assert words_of(read_corpus([folder], characters)) == ["one é", "two", "three"]
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for name, why in (
        ("image.bin", "is binary, and 1 more like it"),
        ("latin.txt", "is not UTF-8"),
        ("huge.txt", "is larger than 4 MiB"),
        ("pipe", "is no regular file"),
        ("gone", "cannot be read: No such file or directory"),
    ):
        assert [line for line in lines if line == f"{folder}: skipped {folder / name}, which {why}"]
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "cannot be read: No such file"),
        ("binary", "is binary"),
        ("empty", "has no text file"),
        ("big", "is larger than 4 MiB"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "binary").write_bytes(b"\0")
    (tmp_path / "empty").mkdir()
    with (tmp_path / "big").open("wb") as big:
        big.truncate(MAX_FILE + 1)
    with pytest.raises(RequestError, match=why) as caught:
        read_corpus([tmp_path / name], characters)
    assert str(tmp_path / name) in caught.value.message and caught.value.param == "lookup_corpus" and caught.value.hint


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="everything can be read here")
def test_without_permission(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir(mode=0)
    with pytest.raises(RequestError, match="cannot read"):
        read_corpus([tmp_path / "secret"], characters)


def test_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_corpus, "MAX_TOKENS", 9)
    with pytest.raises(RequestError, match="more than 9 tokens") as caught:
        read_corpus([folder], characters)
    assert "b.py" in caught.value.message and caught.value.hint == "name fewer files"


def test_options() -> None:
    with pytest.raises(RequestError, match="lookup_corpus is for lookup, which is off"):
        EngineOptions("model.gguf", lookup=False, lookup_corpus=["a.txt"])
    with pytest.raises(RequestError, match="lookup_corpus must be a sequence of"):
        EngineOptions("model.gguf", lookup_corpus="a.txt")
    with pytest.raises(RequestError, match="lookup_answers must be at least 0"):
        EngineOptions("model.gguf", lookup_answers=-1)
