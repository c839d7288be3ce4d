"""Finding libdflash: what a missing, stock, foreign or broken library is told to its user as."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dflash_local import native
from dflash_local.errors import NativeLibraryError
from dflash_local.native import library


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DFLASH_LIBRARY", raising=False)


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "find_spec", lambda _name: None)
    with pytest.raises(NativeLibraryError, match=r"not installed.*run: dflash-local build"):
        native.library_path()


def test_stock_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "llama_cpp"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)
    with pytest.raises(NativeLibraryError, match=r"stock build.*run: dflash-local build"):
        native.library_path()


def test_override_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_LIBRARY", "/nowhere/libdflash.so")
    with pytest.raises(NativeLibraryError, match="names no file"):
        native.library_path()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("unsigned dflash_abi_version(void) { return 99; }", f"ABI 99, this dflash-local needs {native.ABI_VERSION}"),
        ("int other(void) { return 0; }", "cannot load"),
    ],
)
def test_wrong_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiler: str, source: str, message: str
) -> None:
    path = tmp_path / "libdflash.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-o", path, "-"], input=source.encode(), check=True)
    monkeypatch.setenv("DFLASH_LIBRARY", str(path))
    with pytest.raises(NativeLibraryError, match=message):
        native.load.__wrapped__()


def test_not_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "libdflash.so"
    path.write_bytes(b"no ELF")
    monkeypatch.setenv("DFLASH_LIBRARY", str(path))
    with pytest.raises(NativeLibraryError, match=r"cannot load.*run: dflash-local build"):
        native.load.__wrapped__()
