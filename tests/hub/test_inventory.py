"""What the cache holds, as a router lists it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dflash_local.hub.cache import Cache, HubFile
from dflash_local.hub.inventory import entries, path_of

COMMIT = "0" * 40


def unexpected(folder: Path, error: OSError) -> None:
    raise AssertionError(f"{folder}: {error}")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    def add(repo: str, *files: str) -> None:
        home = tmp_path / f"models--{repo.replace('/', '--')}"
        (home / "refs").mkdir(parents=True)
        (home / "refs" / "main").write_text(COMMIT)
        for file in files:
            path = home / "snapshots" / COMMIT / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    add("org/big", "a/big-Q4_K_M-00001-of-00002.gguf", "a/big-Q4_K_M-00002-of-00002.gguf", "big-Q8_0.gguf")
    add("org/big-DFlash-GGUF", "big-DFlash-Q8_0.gguf", "README.md")
    add("org/seen", "mmproj-F16.gguf", "seen.gguf", "seen-F16.gguf", "other-F16.gguf", "mtp-seen-Q8_0.gguf")
    (tmp_path / "models--half").mkdir()
    (tmp_path / "version.txt").touch()
    return Cache(tmp_path)


def test_models_go_by_their_quantization(cache: Cache) -> None:
    found = {entry.name: entry.path.name for entry in entries(cache, unexpected)}
    assert found == {
        "org/big:Q4_K_M": "big-Q4_K_M-00001-of-00002.gguf",
        "org/big:Q8_0": "big-Q8_0.gguf",
        "org/seen:F16": "other-F16.gguf",
    }
    assert list(entries(Cache(cache.root / "none"), unexpected)) == []


def test_one_repository_that_cannot_be_read_hides_no_other(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cache.files

    def files(self: Cache, repo: str, revision: str | None = None) -> list[HubFile]:
        if repo == "org/big":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(self, repo, revision)

    monkeypatch.setattr(Cache, "files", files)
    unreadable = []
    found = [entry.name for entry in entries(cache, lambda folder, _error: unreadable.append(folder.name))]
    assert found == ["org/seen:F16"] and unreadable == ["models--org--big"]


@pytest.mark.parametrize(
    ("name", "file", "expected"),
    [
        ("org/big", None, "big-Q4_K_M-00001-of-00002.gguf"),
        ("org/big:Q8_0", None, "big-Q8_0.gguf"),
        ("org/seen", "seen.gguf", "seen.gguf"),
        ("org/seen", "none.gguf", None),
        ("org/none", None, None),
        ("no name", None, None),
    ],
)
def test_the_file_that_a_name_means(cache: Cache, name: str, file: str | None, expected: str | None) -> None:
    path = path_of(cache, name, file)
    assert (path and path.name) == expected
