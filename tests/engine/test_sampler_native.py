"""dflash::sampler against llama.cpp's common_sampler_sample(), token for token (ggml_ops/tests/test_sampling.cpp)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dflash_local import native
from dflash_local.buildlog import BuildLog
from dflash_local.upstream import Upstream

SOURCES = ("sampling", "gate", "gbnf", "fields", "logits_row", "block_accept")


@pytest.fixture(scope="module")
def program(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native test, linked to the libraries that lie beside libdflash."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    assert compiler, "a C++ compiler is needed"
    folder = tmp_path_factory.mktemp("sampler")
    upstream = Upstream.read(repo / "patches" / "UPSTREAM")
    with BuildLog(folder / "unpack.log") as log:
        upstream.unpack(upstream.fetch(log), folder / "tree")
    llama = folder / "tree" / "vendor" / "llama.cpp"
    ours = repo / "ggml_ops"
    libraries = native.library_path().parent
    include = [f"-I{path}" for path in (ours / "src", llama, llama / "include", llama / "ggml" / "include")]
    files = [str(ours / "tests" / "test_sampling.cpp"), *(str(ours / "src" / f"{name}.cpp") for name in SOURCES)]
    link = [f"-L{libraries}", "-lllama-common", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"]
    target = folder / "test_sampling"
    done = subprocess.run([compiler, "-std=c++17", "-O1", *include, *files, *link, "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow
def test_shortcuts_sample_as_llama_cpp(program: Path, pocket: dict[str, Path]) -> None:
    done = subprocess.run([str(program), str(pocket["target"]), "200"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    agreed = int(done.stdout.splitlines()[-1].removesuffix(" draws agree"))
    assert agreed > 100_000
