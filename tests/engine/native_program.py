"""Compiles a native test against the libraries that lie beside libdflash and the headers of the pinned source."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dflash_local import native
from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream

# What a program needs that calls the kernels of every instruction set.
KERNELS = [f"cpu/isa/{name}.cpp" for name in ("kernels", "avx512", "avx2", "neon", "amx")]


def compile_program(
    repo: Path, folder: Path, sources: Sequence[str], include: Sequence[str], libraries: Sequence[str], *flags: str
) -> Path:
    """`sources` are files of ggml_ops, the first names the program; `include`: folders of ggml_ops, or of llama.cpp
    after "llama.cpp/"."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    assert compiler, "a C++ compiler is needed"
    upstream = Upstream.read(repo / "patches" / "UPSTREAM")
    with BuildLog(folder / "unpack.log") as log:
        upstream.unpack(upstream.fetch(log), folder / "tree")
    ours, vendor, built = repo / "ggml_ops", folder / "tree" / "vendor", native.library_path().parent
    folders = [f"-I{(vendor if path.startswith('llama.cpp') else ours) / path}" for path in include]
    link = [f"-L{built}", *(f"-l{name}" for name in libraries), f"-Wl,-rpath,{built}"]
    target = folder / Path(sources[0]).stem
    command = [
        compiler,
        "-std=c++17",
        "-O1",
        *flags,
        *folders,
        *(str(ours / source) for source in sources),
        *link,
        "-o",
        str(target),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target
