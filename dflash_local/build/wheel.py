"""`dflash-local build`: the pinned llama-cpp-python with our patches and libdflash inside, as one cached wheel,
installed here.

Everything that the wheel depends on goes into one key; the installed build carries its key, so that a build with
nothing to do is a comparison, and the cache carries one wheel per key, so that a second environment needs no compiler.
"""

from __future__ import annotations

import argparse
import errno
import filecmp
import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import BACKENDS, Recipe, detect_backend, make_recipe, native_files
from dflash_local.build.upstream import Upstream, apply_patches, cache_dir, native_source, pip
from dflash_local.errors import BuildError

STAMP = "dflash.json"
LIBRARY = re.compile(r"(^|/)(lib)?dflash\.(so|dylib|dll)$")
DISK_NEEDED = {"cuda": 4 << 30, "hip": 4 << 30}  # bytes; the others leave 0.4 GiB behind
DISK_NEEDED_DEFAULT = 1 << 30
WHEELS_KEPT = 6


# ---- what is installed
# --------------------------------------------------------------------------------------------------


def installed_stamp() -> dict[str, Any] | None:
    """What `build` put into this environment's llama_cpp: key, version, llama_cpp_commit and all fields of Recipe.

    None if llama_cpp is missing, stock, or without libdflash. Reads one small file; never imports llama_cpp.
    """
    importlib.invalidate_caches()
    spec = importlib.util.find_spec("llama_cpp")
    for package in (spec.submodule_search_locations or []) if spec else []:
        try:
            stamp = json.loads((Path(package) / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(stamp, dict) and any(map(LIBRARY.search, (file.name for file in Path(package, "lib").glob("*")))):
            return stamp
    return None


# ---- build
# --------------------------------------------------------------------------------------------------------------


def build(
    backend: str = "auto", cuda_arch: str | None = None, cmake_flags: tuple[str, ...] = (), *, force: bool = False
) -> bool:
    """Make sure that this environment has the patched build that the arguments ask for. Returns False if it already
    had.

    `force` compiles again even if a wheel is cached. Raises BuildError.
    """
    why = ""
    if backend == "auto":
        backend, why = ("cuda", "--cuda-arch was given") if cuda_arch else detect_backend()
    source = native_source()
    recipe = make_recipe(source, backend, cuda_arch, cmake_flags)
    line = f"backend {backend}{f' ({why})' if why else ''}, build {recipe.key}"
    if not force and _is_installed(recipe):
        print(f"{line}: up to date")
        return False
    cache = cache_dir()
    try:
        with _lock(cache / "build.lock"):
            if not force and _is_installed(recipe):
                return False
            with BuildLog(cache / "logs" / f"{recipe.key}.log") as log:
                log.say(line)
                wheel = next((cache / "wheels" / recipe.key).glob("*.whl"), None)
                if wheel is None or force:
                    wheel = _make_wheel(recipe, source, cache, log, force=force)
                _install(wheel, recipe, log)
                log.say(f"installed in {log.seconds:.0f} s (log: {log.path})")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(cache) from None
        what = f"{error.filename or cache}: {error.strerror or error}"
        raise BuildError(what, hint="check the folder's permissions, or set DFLASH_CACHE") from None
    return True


def _is_installed(recipe: Recipe) -> bool:
    stamp = installed_stamp()
    return stamp is not None and stamp.get("key") == recipe.key


def _make_wheel(recipe: Recipe, source: Path, cache: Path, log: BuildLog, *, force: bool) -> Path:
    cache.mkdir(parents=True, exist_ok=True)
    needed = DISK_NEEDED.get(recipe.backend, DISK_NEEDED_DEFAULT)
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise _disk_full(cache, f": {free / 2**30:.1f} GiB free, {needed / 2**30:.0f} GiB needed")
    upstream = Upstream.read(source / "patches" / "UPSTREAM")

    log.say(f"step 1/4: fetch {upstream.package}=={upstream.version}")
    archive = upstream.fetch(log)

    work = cache / "work" / recipe.backend
    tree = work / "tree"
    mark = work / "tree_key"
    # The tree of the last build is compiled further if only our own sources changed.
    if force or not (mark.is_file() and mark.read_text(encoding="utf-8") == recipe.tree_key):
        log.say("step 2/4: unpack and patch")
        shutil.rmtree(work, ignore_errors=True)
        upstream.unpack(archive, tree)
        for name in apply_patches(source / "patches", tree):
            log.say(f"  {name}")
        mark.write_text(recipe.tree_key, encoding="utf-8")
    else:
        log.say("step 2/4: unpacked and patched already")
    _sync_native(source / "ggml_ops", work / "ggml_ops")
    version = _set_version(tree, upstream, recipe)
    shutil.rmtree(tree / "llama_cpp" / "lib", ignore_errors=True)  # what the last build installed into the source tree
    stamp = asdict(recipe) | {"key": recipe.key, "version": version, "llama_cpp_commit": upstream.commit}
    (tree / "llama_cpp" / STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")

    log.say(f"step 3/4: compile (minutes; log: {log.path})")
    return _compile(recipe, work, cache / "wheels", log)


def _sync_native(source: Path, target: Path) -> None:
    """Mirror our sources, touching only files that changed, so that only they are compiled again."""
    wanted = {file.relative_to(source): file for file in native_files(source)}
    for old in native_files(target):
        if old.relative_to(target) not in wanted:
            old.unlink()
    for name, file in wanted.items():
        copy = target / name
        if not (copy.is_file() and filecmp.cmp(file, copy, shallow=False)):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _set_version(tree: Path, upstream: Upstream, recipe: Recipe) -> str:
    """Mark the version as ours (`0.3.36+dflash.1a2b3c4d`), so that `pip list` shows it and pip sees that it differs
    from stock."""
    init = tree / "llama_cpp" / "__init__.py"
    version = f"{upstream.version}+dflash.{recipe.key[:8]}"
    text, count = re.subn(r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"', init.read_text(encoding="utf-8"))
    if count != 1:
        raise BuildError(
            f"{init}: no __version__ line",
            hint="the pinned package changed its layout: adapt dflash_local/build/wheel.py",
        )
    init.write_text(text, encoding="utf-8")
    return version


def _compile(recipe: Recipe, work: Path, wheels: Path, log: BuildLog) -> Path:
    defines = [f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={(work / 'ggml_ops' / 'inject.cmake').as_posix()}"]
    defines += [flag for flag in recipe.flags if flag.startswith("-")]
    # CMake and ninja from this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = os.environ | {
        "CMAKE_ARGS": shlex.join(defines),
        "PATH": path,
        "SKBUILD_BUILD_DIR": str(work / "build"),
        "SKBUILD_WHEEL_EXCLUDE": "/lib;/include",  # CMake's own install of the same libraries, beside llama_cpp/lib
    }
    env.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    wheels.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheels) as scratch:
        # pip's own cache knows a wheel by its source alone, whatever CMAKE_ARGS said.
        command = [*pip(), "wheel", "--no-deps", "--no-cache-dir", "-v", "-w", scratch, str(work / "tree")]
        status, lines = log.run(command, env=env)
        if status != 0:
            if any("No space left on device" in line for line in lines):
                raise _disk_full(work)
            other = "" if recipe.backend == "cpu" else ", or leave the GPU out: dflash-local build --backend cpu"
            what = f"the build failed (log: {log.path})\n{log.excerpt(lines)}"
            raise BuildError(what, hint=f"read the log from its first error on{other}")
        built = next(Path(scratch).glob("*.whl"))
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


def _install(wheel: Path, recipe: Recipe, log: BuildLog) -> None:
    log.say(f"step 4/4: install {wheel.name}")
    status, lines = log.run([*pip(), "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel)])
    if status != 0:
        if any("No space left on device" in line for line in lines):
            raise _disk_full(Path(sys.prefix))
        what = f"pip could not install {wheel.name} (log: {log.path})\n{log.excerpt(lines)}"
        raise BuildError(what, hint="use a virtual environment that you can write to")
    if not _is_installed(recipe):
        raise BuildError(
            f"{wheel.name} was installed, but llama_cpp/lib holds no libdflash of this build",
            hint="another llama_cpp comes first on Python's path: remove it",
        )


def _disk_full(folder: Path, detail: str = "") -> BuildError:
    return BuildError(
        f"not enough disk space in {folder}{detail}", hint="free some, or point DFLASH_CACHE at a larger disk"
    )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One build per cache at a time; the operating system drops the lock with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("waiting for another build to end", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---- command
# ------------------------------------------------------------------------------------------------------------


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `build` to the command line."""
    parser = subparsers.add_parser(
        "build",
        help="compile and install the patched llama.cpp (once, minutes)",
        description="Fetches the pinned llama-cpp-python source with pip, checks its hash, patches it, compiles it "
        "with libdflash inside and installs the wheel into this Python environment. Does nothing if that build is "
        "installed already.",
        epilog="Everything after -- goes to CMake: dflash-local build --backend cpu -- -DGGML_NATIVE=OFF",
    )
    backends = ("auto", *BACKENDS)
    parser.add_argument(
        "--backend", choices=backends, default="auto", help="where models run; auto: a GPU whose toolkit is here too"
    )
    parser.add_argument(
        "--cuda-arch", metavar="LIST", help="CUDA architectures, such as '86;89' (default: the GPU of this machine)"
    )
    parser.add_argument("--force", action="store_true", help="compile again even if nothing changed")
    parser.add_argument(
        "--tree",
        type=Path,
        metavar="DIR",
        help="only unpack and patch the pinned source into DIR (for work on patches/)",
    )
    parser.add_argument("cmake_flags", nargs="*", metavar="-DFLAG=VALUE", help="flags for CMake, after --")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.tree is not None:
        return _write_tree(args.tree)
    build(args.backend, args.cuda_arch, tuple(args.cmake_flags), force=args.force)
    return 0


def _write_tree(tree: Path) -> int:
    if tree.exists():
        raise BuildError(f"{tree} exists already", hint="name a folder that does not exist")
    patches = native_source() / "patches"
    upstream = Upstream.read(patches / "UPSTREAM")
    with BuildLog(cache_dir() / "logs" / "tree.log") as log:
        upstream.unpack(upstream.fetch(log), tree.absolute())
        names = apply_patches(patches, tree)
        log.say(f"{tree}: {upstream.package} {upstream.version} with {len(names)} patches")
    return 0
