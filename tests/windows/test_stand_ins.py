"""What is different on Windows, by stand-ins for its parts: these run everywhere. test_wine.py has the real ones."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dflash_local.build import recipe
from dflash_local.cli.terminal.console import set_up_console
from dflash_local.errors import BuildError
from dflash_local.file_lock import locked
from dflash_local.hub.links import link_or_copy
from dflash_local.native import library


def refuse(*_: object, **__: object) -> None:
    raise OSError("A required privilege is not held by the client")


@pytest.mark.parametrize("hard_links", [True, False])
def test_without_symbolic_links_a_file_has_a_second_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    source, path = tmp_path / "blob", tmp_path / "name"
    source.write_bytes(b"data")
    monkeypatch.setattr(Path, "symlink_to", refuse)
    if not hard_links:
        monkeypatch.setattr(os, "link", refuse)
    link_or_copy(source, path)
    assert path.read_bytes() == b"data"
    assert not path.is_symlink()
    assert source.samefile(path) == hard_links


def test_both_names_of_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert library._library_in(tmp_path, "dflash") is None
    for name in ("libdflash.dll", "dflash.dll"):  # mingw's and Microsoft's
        (tmp_path / name).touch()
        assert library._library_in(tmp_path, "dflash") == tmp_path / name


def test_gcc_is_named_and_nvcc_keeps_microsofts_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[str] = []
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(shutil, "which", lambda name: f"C:\\{name}.exe" if name in there else None)
    monkeypatch.delenv("CXX", raising=False)
    assert recipe._host_compiler("CXX", "cpu") == recipe.MSVC
    there.append("g++")
    assert recipe._host_compiler("CXX", "cpu") == "C:\\g++.exe"
    assert recipe._host_compiler("CXX", "cuda") == recipe.MSVC
    monkeypatch.setenv("CXX", "clang++")
    with pytest.raises(BuildError, match="no compiler clang"):
        recipe._host_compiler("CXX", "cpu")


def test_what_goes_into_a_pipe_is_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    colorama = SimpleNamespace(just_fix_windows_console=lambda: None)
    monkeypatch.setitem(sys.modules, "colorama", colorama)
    monkeypatch.setattr(sys, "platform", "win32")
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252"))
    set_up_console()
    print("Größe 模型", flush=True)
    assert raw.getvalue().decode() == "Größe 模型\n"


def test_a_lock_waits_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    hold = "import sys, pathlib; from dflash_local.file_lock import locked\n"
    hold += "with locked(pathlib.Path(sys.argv[1])):\n    print(flush=True)\n    sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", hold, str(path)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with locked(path, waiting=process.kill):
            assert process.wait() != 0
