"""Upstream's own llama-server, built from the unpatched pinned source: the baseline of measurements.

It has the same source, compiler, optimization and backend as our build, so that only our code makes a difference, but
upstream's threads (OpenMP's where there is one): with ggml's own, two contexts of one server slow each other down, and
upstream drafts at a seventh of its speed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dflash_local.build.cmake import compile_with_cmake
from dflash_local.build.folder_errors import cache_errors
from dflash_local.build.installed_build import installed_stamp
from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import ENVIRONMENT, THREAD_FLAGS, Recipe, make_recipe
from dflash_local.build.upstream import Upstream, native_source
from dflash_local.cache_dir import cache_dir
from dflash_local.errors import BuildError
from dflash_local.file_lock import locked

PROGRAM = "llama-server.exe" if sys.platform == "win32" else "llama-server"
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",  # the programs are moved into the cache after the build
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_BUILD_COMMON=ON",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # would be downloaded
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_SUBPROCESS=ON",  # its router starts a process for each model
)
# Before 12.4, 13.3 and 14, gcc's intrinsic that loads AMX's tile configuration declared a read of only 8 bytes. gcc
# removed the other stores, and upstream built for a CPU with AMX dies of an illegal instruction. This header, included
# before that one file, has the right intrinsic and leaves the source unpatched.
AMX_HEADER = """\
#if defined(__GNUC__) && !defined(__clang__) && defined(__AMX_TILE__)
#include <immintrin.h>
static inline void load_tile_config(const void * config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(*(const char (*)[64]) config));
}
#define _tile_loadconfig load_tile_config
#endif
"""
# With AVX512-FP16, a native build accumulates in half precision and has no vector code for heads of 64: plain decoding
# was a tenth to a sixth slower, drafted a quarter to a third. Neither upstream's released CPU variants nor our build
# use it.
CMAKE = """\
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-mno-avx512fp16 HAS_NO_AVX512FP16)
if (HAS_NO_AVX512FP16)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-mno-avx512fp16>)
endif()
if (CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    cmake_language(DEFER CALL set_source_files_properties ${CMAKE_SOURCE_DIR}/ggml/src/ggml-cpu/amx/mmq.cpp
        TARGET_DIRECTORY ggml-cpu PROPERTIES COMPILE_OPTIONS "-include;${AMX_HEADER}")
endif()
"""


def pin() -> Upstream:
    """The source that `patches/UPSTREAM` pins."""
    return Upstream.read(native_source() / "patches" / "UPSTREAM")


def build(recipe: Recipe | None = None) -> Path:
    """The folder with `PROGRAM`, built with the backend and flags of `recipe` (default: the installed build, else cpu)
    unless the cache has it. Progress goes to stderr, since stdout is for the results of a measurement.

    DFLASH_PEER_BIN names a folder to use instead. Raises BuildError.
    """
    if given := os.environ.get("DFLASH_PEER_BIN"):
        return _complete(Path(given))
    recipe = recipe or _installed_recipe()
    flags = [*(flag for flag in recipe.flags if flag not in THREAD_FLAGS), *FLAGS]
    identity = json.dumps([recipe.upstream, flags, AMX_HEADER, CMAKE, recipe.compilers, recipe.machine])
    cache = cache_dir()
    home = cache / "peer" / hashlib.sha256(identity.encode()).hexdigest()[:16]
    if not home.is_dir():
        with cache_errors(cache), locked(home.with_suffix(".lock"), _note_waiting):
            if not home.is_dir():
                progress = BuildLog(cache / "logs" / f"peer-{home.name}.log", sys.stderr)
                with progress as log, _scratch(home.parent) as scratch:
                    _compile(scratch, flags, log).rename(home)
    return _complete(home)


def _note_waiting() -> None:
    print("waiting for another build of upstream's server to end", file=sys.stderr, flush=True)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A new folder in `folder`, which is made; removed at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        yield Path(scratch)


def _installed_recipe() -> Recipe:
    """That of the installed build if it was made for this machine; else of one that would be."""
    stamp = installed_stamp() or {}
    recipe = make_recipe(native_source(), str(stamp.get("backend", "cpu")))
    return replace(recipe, flags=tuple(stamp["flags"])) if stamp.get("machine") else recipe


def _compile(scratch: Path, flags: list[str], log: BuildLog) -> Path:
    upstream = pin()
    log.say(f"upstream's own server, once: {upstream.package} {upstream.version}, unpatched (log: {log.path})")
    upstream.unpack(upstream.fetch(log), scratch / "tree")
    build = scratch / "build"
    (scratch / "amx.h").write_text(AMX_HEADER, encoding="utf-8")
    (scratch / "peer.cmake").write_text(CMAKE, encoding="utf-8")
    llama = scratch / "tree" / "vendor" / "llama.cpp"
    # What the build did not have the shell may have.
    unset = [f"{name}=" for name in ENVIRONMENT if not any(flag.startswith(f"{name}=") for flag in flags)]
    flags = [*unset, *flags, f"-DCMAKE_PROJECT_INCLUDE={scratch / 'peer.cmake'}", f"-DAMX_HEADER={scratch / 'amx.h'}"]
    compile_with_cmake("upstream's server", llama, build, flags, log, "--target", "llama-server")
    return build / "bin"


def _complete(folder: Path) -> Path:
    if not (folder / PROGRAM).is_file():
        raise BuildError(
            f"{folder} has no {PROGRAM}", hint="delete the folder to build it again, or correct DFLASH_PEER_BIN"
        )
    return folder


if __name__ == "__main__":
    print(build())
