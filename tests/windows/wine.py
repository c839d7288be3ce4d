"""Windows without Windows: what mingw-w64 compiles and Python's own build for Windows, both run by wine.

Everything is kept in the cache (`cross/`): libraries and tests that were compiled, wine's folder, and Python with the
packages that dflash-local needs. Python is the one of release/windows_zip.py.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import requires
from pathlib import Path

from dflash_local.build.recipe import CMAKE_FLAGS
from dflash_local.build.upstream import pip
from dflash_local.cache_dir import cache_dir
from dflash_local.file_lock import locked
from release.windows_zip import unpack_python
from tests.ggml_ops.native import REPO, Project, llama_source, run
from tests.toolchains import TOOLCHAINS

TOOLCHAIN = REPO / "ggml_ops" / "tests" / "windows.cmake"
# The newest numpy whose C library wine 8 has.
PINNED = ("numpy==1.26.4", "pytest", "anyio")
# Rust's random numbers, which Windows has and wine before 8.17 has not.
PRNG = """\
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL ProcessPrng(PBYTE data, SIZE_T size) { return RtlGenRandom(data, (ULONG) size); }
"""


def missing() -> str:
    """What to install first; empty if all is here."""
    toolchain = TOOLCHAINS["windows"]
    lacking = toolchain.missing()
    return f"needs {', '.join(lacking)} ({toolchain.hint})" if lacking else ""


def environment() -> dict[str, str]:
    """For a program that wine runs, in a folder of wine's that holds nothing else."""
    quiet = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml=;winemenubuilder.exe=d"}
    return {**os.environ, **quiet, "WINEPREFIX": str(_home() / "wine")}


@cache
def libraries() -> Path:
    """The folder of libdflash.dll and all that it needs. Raises RuntimeError with the compiler's words."""
    build = _home() / "libraries"
    folder = build / "bin"
    options = [f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", *CMAKE_FLAGS]
    options += [f"-DCMAKE_{kind}_OUTPUT_DIRECTORY={folder}" for kind in ("RUNTIME", "ARCHIVE")]
    options += [f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={TOOLCHAIN.parent / 'quick_inject.cmake'}", "-Wno-author"]
    options += [f"-DSKBUILD_PLATLIB_DIR={build / 'platlib'}"]
    package = llama_source().parents[1]
    with locked(_home() / "lock"):
        run(["cmake", "-S", str(package), "-B", str(build), "-G", "Ninja", *options])
        run(["cmake", "--build", str(build), "--target", "dflash", "ggml-rpc"])
    return folder


@cache
def native_tests() -> Project:
    """The native tests, built. Raises RuntimeError with the compiler's words."""
    options = [f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}", f"-DDFLASH_LIBRARIES={libraries()}", "-DDFLASH_SANITIZE=OFF"]
    project = Project(_home() / "tests", (*options, "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"))
    project.build(slow=True)
    return project


@dataclass(frozen=True)
class WinePython:
    """Python for Windows, which finds dflash-local, llama_cpp with our libraries, and the tests."""

    program: Path
    folder: Path

    def run(self, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """A command of it, with pipes for streams: wine's Python does not start on a terminal that is none."""
        return subprocess.run(
            ["wine", str(self.program), *arguments],
            cwd=self.folder, env=environment(), input="", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace", timeout=timeout,
        )  # fmt: skip


@cache
def python() -> WinePython:
    """Ready to run. Raises RuntimeError with pip's words."""
    home = _home() / "python"
    built = libraries()  # under the same lock
    with locked(_home() / "lock"):
        program, packages = _embedded(home), _packages(home)
        shape = _shape(home, built)
    # Paths of Unix are those of wine's drive Z; without it they would be below the program's folder.
    (program.parent / "python311._pth").write_text(f"python311.zip\n.\nZ:{packages}\nZ:{shape}\n", encoding="utf-8")
    return WinePython(program, shape)


def _embedded(home: Path) -> Path:
    """Python itself, and the library that wine lacks beside it."""
    program = home / "cp311" / "python.exe"
    if not program.is_file():
        home.mkdir(parents=True, exist_ok=True)
        unpack_python(home)
        source = home / "prng.c"
        source.write_text(PRNG, encoding="utf-8")
        library = program.parent / "bcryptprimitives.dll"
        run(["x86_64-w64-mingw32-gcc-posix", "-shared", "-o", str(library), str(source)])
    return program


def _packages(home: Path) -> Path:
    """What dflash-local needs, as wheels for Windows."""
    needed = [
        line for line in requires("dflash-local") or [] if "extra ==" not in line and not line.startswith("numpy")
    ]
    needed = [*(line.partition(";")[0].strip() for line in needed), *PINNED]
    folder = home / f"packages-{hashlib.sha256(repr(needed).encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        kind = ["--platform", "win_amd64", "--python-version", "3.11", "--only-binary=:all:", "--no-compile"]
        scratch = home / "unpacked"
        shutil.rmtree(scratch, ignore_errors=True)
        run([*pip(), "install", "--quiet", *kind, "--target", str(scratch), *needed])
        scratch.rename(folder)
    return folder


def _shape(home: Path, built: Path) -> Path:
    """dflash_local as it is installed, by links; llama_cpp, patched, with the libraries in it."""
    folder = home / "shape"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "dflash_local").mkdir(parents=True)
    for entry in (*(REPO / "dflash_local").iterdir(), REPO / "convert", REPO / "server"):
        (folder / "dflash_local" / entry.name).symlink_to(entry)
    for name in ("benchmarks", "pyproject.toml", "tests"):
        (folder / name).symlink_to(REPO / name)
    shutil.copytree(llama_source().parents[1] / "llama_cpp", folder / "llama_cpp")
    (folder / "llama_cpp" / "lib").mkdir(exist_ok=True)
    for library in built.glob("*.dll"):
        shutil.copy(library, folder / "llama_cpp" / "lib" / library.name)
    return folder


def _home() -> Path:
    key = hashlib.sha256(f"{REPO}{llama_source()}{sys.version}".encode()).hexdigest()[:16]
    return (cache_dir() / "cross").resolve() / f"windows-{key}"
