"""A pinned source, a checkout and a pip in miniature; and real wheels."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from dflash_local.build import builder, bundle, installation, recipe, tree, upstream, vulkan, wheel
from dflash_local.cache_dir import cache_dir
from dflash_local.cli import main

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Of the CPU backend, in wheels that tests compile: one for each kind of processor that is tested.
VARIANTS = ("x64", "haswell", "skylakex")
PATCH = """\
--- a/vendor/llama.cpp/llama.cpp
+++ b/vendor/llama.cpp/llama.cpp
@@ -1,2 +1,2 @@
-one
+ONE
 two
"""


@dataclass
class World:
    """Everything that a build reads or writes, below one folder."""

    source: Path
    cache: Path
    pip: Path
    bin: Path

    def calls(self) -> list[str]:
        """pip commands so far."""
        file = self.pip / "calls"
        return file.read_text().split() if file.is_file() else []

    def repin(self, sha256: str | None = None, commit: str = COMMIT) -> None:
        """Write patches/UPSTREAM; without a hash, the archive's own."""
        sha256 = sha256 or upstream.sha256(self.pip / "llama_cpp_python-1.0.tar.gz")
        (self.source / "patches" / "UPSTREAM").write_text(
            f"# pin\npackage llama-cpp-python==1.0\nsha256 {sha256}\nllama.cpp {commit}\n"
        )

    def vulkan_headers(self, version: tuple[int, int, int], *, spirv: bool = True) -> Path:
        """A folder with headers of this version, of which only the version is read."""
        folder = self.bin.parent / f"headers-{version[2]}"
        (folder / "vulkan").mkdir(parents=True, exist_ok=True)
        complete = f"VK_MAKE_API_VERSION(0, {version[0]}, {version[1]}, VK_HEADER_VERSION)"
        (folder / "vulkan" / "vulkan_core.h").write_text(
            f"#define VK_HEADER_VERSION {version[2]}\n#define VK_HEADER_VERSION_COMPLETE {complete}\n"
        )
        if spirv:
            (folder / "spirv" / "unified1").mkdir(parents=True, exist_ok=True)
            (folder / "spirv" / "unified1" / "spirv.hpp").touch()
        return folder

    def tool(self, name: str, version: str = "1") -> Path:
        """A program on PATH that only knows its version."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\necho {name} {version}\n")
        path.chmod(0o755)
        return path


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path / "source", tmp_path / "cache", tmp_path / "pip", tmp_path / "bin")
    for folder in (
        world.pip,
        world.bin,
        world.source / "patches",
        world.source / "ggml_ops" / "engine",
        world.source / "ggml_ops" / "tests",
    ):
        folder.mkdir(parents=True)

    with tarfile.open(world.pip / "llama_cpp_python-1.0.tar.gz", "w:gz") as tar:
        for name, text in {
            ".git/modules/vendor/llama.cpp/HEAD": COMMIT + "\n",
            "llama_cpp/__init__.py": 'from .llama import *\n\n__version__ = "1.0"\n',
            "vendor/llama.cpp/llama.cpp": "one\ntwo\n",
        }.items():
            entry = tarfile.TarInfo(f"llama_cpp_python-1.0/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    world.repin()
    (world.source / "patches" / "0001-shout.patch").write_text(PATCH)
    (world.source / "ggml_ops" / "inject.cmake").write_text("# cmake\n")
    (world.source / "ggml_ops" / "engine" / "engine.cpp").write_text("int engine;\n")
    (world.source / "ggml_ops" / "engine" / "tree.cpp").write_text("int tree;\n")
    world.tool("cc")
    world.tool("c++")

    headers = ("CMAKE_PREFIX_PATH", "VULKAN_SDK", "CPATH", "CPLUS_INCLUDE_PATH")
    for variable in ("CC", "CXX", "CUDACXX", "CMAKE_ARGS", *headers, *recipe.ENVIRONMENT):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", f"{world.bin}:/usr/bin:/bin")
    monkeypatch.setattr(vulkan, "_SYSTEM", (str(world.vulkan_headers(vulkan.NEEDED)),))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "no-cuda"))
    monkeypatch.setenv("DFLASH_CACHE", str(world.cache))
    monkeypatch.setenv("FAKE_PIP", str(world.pip))
    fake = [sys.executable, str(Path(__file__).with_name("fake_pip.py"))]
    for module in (bundle, installation, upstream, wheel):
        monkeypatch.setattr(module, "pip", lambda: fake)
    for module in (builder, tree):
        monkeypatch.setattr(module, "native_source", lambda: world.source)

    def find(name: str) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.PathFinder.find_spec(name, [str(world.pip / "site")])

    monkeypatch.setattr(importlib.util, "find_spec", find)
    return world


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both wheels, as `dflash-local wheel --portable` makes them.

    They are compiled once for a version of the sources. `DFLASH_TEST_WHEELS` names a folder of ready ones instead, such
    as those that are about to be released, with all variants of the CPU backend.
    """
    if ready := os.environ.get("DFLASH_TEST_WHEELS"):
        return Path(ready).resolve()
    home = cache_dir() / "wheel-tests"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "sdist").exists():
        (home / "sdist").symlink_to((cache_dir() / "sdist").resolve(), target_is_directory=True)
    out = tmp_path_factory.mktemp("wheels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DFLASH_CACHE", str(home))
        status = main(["wheel", "--portable", "--out", str(out), "--", f"-DDFLASH_CPU_VARIANTS={';'.join(VARIANTS)}"])
    assert status == 0
    return out
