"""The source tree to compile: the pinned llama-cpp-python with our patches, and our own sources beside it."""

from __future__ import annotations

import filecmp
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

from dflash_local.build.folder_errors import cache_errors, folder_errors
from dflash_local.build.installed_build import STAMP
from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import Recipe, native_files
from dflash_local.build.upstream import Upstream, apply_patches, native_source
from dflash_local.cache_dir import cache_dir
from dflash_local.errors import BuildError


def prepare_tree(recipe: Recipe, source: Path, work: Path, log: BuildLog, *, force: bool) -> str:
    """Prepare work/tree (the package) and work/ggml_ops (a copy of ours) for compilation; `source` holds patches/ and
    ggml_ops/. Returns the package's version.

    `force` unpacks and patches again even if nothing changed. Raises BuildError.
    """
    upstream = Upstream.read(source / "patches" / "UPSTREAM")

    log.say(f"step 1/4: fetch {upstream.package}=={upstream.version}")
    archive = upstream.fetch(log)

    tree = work / "tree"
    mark = work / "tree_key"
    # If only our own sources changed, the tree of the last build is compiled incrementally.
    if force or not (mark.is_file() and mark.read_text(encoding="utf-8") == recipe.tree_key):
        log.say("step 2/4: unpack and patch")
        shutil.rmtree(work, ignore_errors=True)
        upstream.unpack(archive, tree)
        for name in apply_patches(source / "patches", tree):
            log.say(f"  {name}")
        mark.write_text(recipe.tree_key, encoding="utf-8")
    else:
        log.say("step 2/4: unpacked and patched already")
    _sync_sources(source / "ggml_ops", work / "ggml_ops")
    version = _set_version(tree, upstream, recipe)
    shutil.rmtree(tree / "llama_cpp" / "lib", ignore_errors=True)  # installed there by the last build
    stamp = asdict(recipe) | {"key": recipe.key, "version": version, "llama_cpp_commit": upstream.commit}
    (tree / "llama_cpp" / STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    return version


def _sync_sources(source: Path, target: Path) -> None:
    """Mirror our sources, touching only changed files, so that only these are compiled again."""
    files = {file.relative_to(source): file for file in native_files(source)}
    for old in native_files(target):
        if old.relative_to(target) not in files:
            old.unlink()
    for name, file in files.items():
        copy = target / name
        if not (copy.is_file() and filecmp.cmp(file, copy, shallow=False)):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _set_version(tree: Path, upstream: Upstream, recipe: Recipe) -> str:
    """Mark the version as ours (`0.3.36+dflash.1a2b3c4d`), so that users and pip can tell it from the stock one."""
    init = tree / "llama_cpp" / "__init__.py"
    version = f"{upstream.version}+dflash.{recipe.key[:8]}"
    text, count = re.subn(r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"', init.read_text(encoding="utf-8"))
    if count != 1:
        raise BuildError(
            f"{init}: no __version__ line",
            hint="the pinned package changed its layout: adapt dflash_local/build/tree.py",
        )
    init.write_text(text, encoding="utf-8")
    return version


def write_tree(tree: Path) -> None:
    """Unpack and patch the pinned source into the new folder `tree`, for work on patches/. Raises BuildError."""
    if tree.exists():
        raise BuildError(f"{tree} exists already", hint="name a folder that does not exist")
    patches = native_source() / "patches"
    upstream = Upstream.read(patches / "UPSTREAM")
    cache = cache_dir()
    with cache_errors(cache), BuildLog(cache / "logs" / "tree.log") as log:
        archive = upstream.fetch(log)
        with folder_errors(tree, "name a folder that can be written: --tree DIR"):
            upstream.unpack(archive, tree.absolute())
            names = apply_patches(patches, tree)
        log.say(f"{tree}: {upstream.package} {upstream.version} with {len(names)} patches")
