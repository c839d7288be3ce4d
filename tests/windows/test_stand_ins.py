"""What is different on Windows, by stand-ins for its parts: these run everywhere. test_wine.py has the real ones."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

from dflash_local.build import recipe
from dflash_local.cli.terminal.console import set_up_console
from dflash_local.convert.sparse_file import extend
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


def test_a_file_system_without_locks_is_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of filelock raise what is no OSError."""

    def acquire(*_: object, **__: object) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(FileLock, "acquire", acquire)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)), locked(tmp_path / "lock"):
        pass


class Kernel:
    """The calls of a file's handle, which fail or do their work."""

    def __init__(self, *, fails: bool) -> None:
        self.fails, self.calls = fails, list[tuple[str, int]]()

    def DeviceIoControl(self, handle: ctypes.c_void_p, code: int, *_: object) -> int:
        self.calls.append(("control", code))
        return not self.fails

    def SetFileInformationByHandle(self, handle: ctypes.c_void_p, kind: int, place: Any, n_bytes: int) -> int:
        self.calls.append(("set", kind))
        size = ctypes.cast(place, ctypes.POINTER(ctypes.c_int64)).contents.value
        if not self.fails:
            os.ftruncate(handle.value or 0, size)
        return n_bytes == 8 and not self.fails


class Truncated(io.FileIO):
    """A file that remembers how long it was before truncate(), which writes zeros up to the new end."""

    before = -1

    def truncate(self, size: int | None = None) -> int:
        self.before = os.fstat(self.fileno()).st_size
        return super().truncate(size)


@pytest.mark.parametrize("fails", [False, True])
def test_a_header_is_not_followed_by_zeros_that_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """FSCTL_SET_SPARSE, then FileEndOfFileInfo; if they fail, truncate() does all."""
    kernel = Kernel(fails=fails)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "WinDLL", lambda name: kernel, raising=False)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(get_osfhandle=lambda number: number))
    raw = Truncated(tmp_path / "header", "w")
    with io.BufferedWriter(raw) as file:
        file.write(b"GGUF")
        extend(file, 1 << 30)
        assert file.tell() == 4
    assert kernel.calls == [("control", 0x900C4), ("set", 6)]
    assert raw.before == (4 if fails else 1 << 30)
    with (tmp_path / "header").open("rb") as written:
        assert written.read(8) == b"GGUF\0\0\0\0"
    assert (tmp_path / "header").stat().st_size == 1 << 30
