"""The wheel: the patched llama-cpp-python with libdflash inside, compiled once per recipe and kept in the cache."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import zipfile
from pathlib import Path, PurePath

from dflash_local.build.disk_space import check_space, disk_full
from dflash_local.build.installed_build import LIBRARY, STAMP
from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import MSVC, UNWANTED, Recipe
from dflash_local.build.sysroot import with_folder
from dflash_local.build.tree import prepare_tree
from dflash_local.build.upstream import pip
from dflash_local.cache_dir import cache_dir
from dflash_local.errors import BuildError
from dflash_local.scratch import scratch_in

WHEELS_KEPT = 6


def cached_wheel(recipe: Recipe, cache: Path) -> Path | None:
    """The wheel of an earlier build by the same recipe, if any."""
    return next((cache / "wheels" / recipe.key).glob("*.whl"), None)


def make_wheel(recipe: Recipe, source: Path, cache: Path, log: BuildLog, *, force: bool) -> Path:
    """Compile the wheel of `recipe` from patches/ and ggml_ops/ in `source`, and keep it in the cache. Raises
    BuildError."""
    cache.mkdir(parents=True, exist_ok=True)
    check_space(cache, recipe.backend)
    work = cache / "work" / recipe.work_name
    prepare_tree(recipe, source, work, log, force=force)
    log.say(f"step 3/4: compile (minutes; log: {log.path})")
    return _compile(recipe, work, cache / "wheels", log)


def compile_environment(recipe: Recipe, ggml_ops: PurePath) -> dict[str, str]:
    """Environment variables that make any build of llama-cpp-python the one of `recipe`.

    `ggml_ops`: our sources, where the compiler runs.
    """
    defines = [f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={(ggml_ops / 'inject.cmake').as_posix()}"]
    defines += [with_folder(flag, cache_dir()) for flag in recipe.flags if flag.startswith("-")]
    env = {
        "CMAKE_ARGS": shlex.join(defines),
        # CMake installs the same libraries a second time, beside llama_cpp/lib.
        "SKBUILD_WHEEL_EXCLUDE": "/lib;/include;/bin",
        "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1)),
    }
    if sys.platform == "win32" and MSVC not in recipe.compilers:
        # Visual Studio's generator allows only its own compiler.
        env["CMAKE_GENERATOR"] = os.environ.get("CMAKE_GENERATOR", "Ninja")
    return env


def _compile(recipe: Recipe, work: Path, wheels: Path, log: BuildLog) -> Path:
    # CMake and ninja from this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = os.environ | {"PATH": path, "SKBUILD_BUILD_DIR": str(work / "build")}
    env |= compile_environment(recipe, work / "ggml_ops")
    env.pop(UNWANTED, None)
    wheels.mkdir(parents=True, exist_ok=True)
    with scratch_in(wheels) as scratch:
        # pip's cache ignores CMAKE_ARGS: its key is the source alone.
        command = [*pip(), "wheel", "--no-deps", "--no-cache-dir", "-v", "-w", str(scratch), str(work / "tree")]
        status, lines = log.run(command, env=env)
        if status != 0:
            if any("No space left on device" in line for line in lines):
                raise disk_full(work)
            other = "" if recipe.backend == "cpu" else ", or leave the GPU out: dflash-local build --backend cpu"
            what = f"the build failed (log: {log.path})\n{log.excerpt(lines)}"
            raise BuildError(what, hint=f"read the log from its first error on{other}")
        built = next(scratch.glob("*.whl"))
        with zipfile.ZipFile(built) as archive:
            names = archive.namelist()
        if f"llama_cpp/{STAMP}" not in names or not any(map(LIBRARY.search, names)):
            what = f"the build ended without libdflash in {built.name} (log: {log.path})"
            raise BuildError(what, hint="ggml_ops/inject.cmake must add and install the target 'dflash'; try --force")
        folder = wheels / recipe.key
        folder.mkdir(exist_ok=True)
        built = built.replace(folder / built.name)
    for old in sorted((entry for entry in wheels.iterdir() if entry.is_dir()), key=lambda entry: entry.stat().st_mtime)[
        :-WHEELS_KEPT
    ]:
        shutil.rmtree(old, ignore_errors=True)
    return built
