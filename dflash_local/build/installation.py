"""The installation of a wheel into this Python environment, and whether it is there, whole."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dflash_local.build.disk_space import disk_full
from dflash_local.build.installed_build import installed_stamp
from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import GPUS, Recipe
from dflash_local.build.upstream import pip
from dflash_local.errors import BuildError


def is_installed(recipe: Recipe) -> bool:
    """Whether the installed build is the one that `recipe` describes, whole, even if just installed. Not
    thread-safe."""
    importlib.invalidate_caches()
    stamp = installed_stamp()
    return stamp is not None and (stamp.get("key") == recipe.key or _is_for_unseen_gpus(stamp, recipe)) and _is_whole()


def _is_for_unseen_gpus(stamp: Mapping[str, Any], recipe: Recipe) -> bool:
    """Whether the recipe differs only because the GPUs cannot be asked for now: a driver that was just updated, say."""
    made_for = [entry for entry in stamp.get("compilers", ()) if entry.startswith(GPUS)]
    if not made_for or any(entry.startswith(GPUS) for entry in recipe.compilers):
        return False
    return replace(recipe, compilers=(*recipe.compilers, *made_for)).key == stamp.get("key")


def _is_whole() -> bool:
    """Whether pip came to its end: it writes RECORD last."""
    try:
        return importlib.metadata.distribution("llama_cpp_python").read_text("RECORD") is not None
    except importlib.metadata.PackageNotFoundError:
        return False


def install(wheel: Path, recipe: Recipe, log: BuildLog) -> None:
    """Install a wheel made by `recipe`. Raises BuildError if pip fails, or if another llama_cpp hides it."""
    log.say(f"step 4/4: install {wheel.name}")
    status, lines = log.run([*pip(), "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel)])
    if status != 0:
        if any("No space left on device" in line for line in lines):
            raise disk_full(Path(sys.prefix))
        what = f"pip could not install {wheel.name} (log: {log.path})\n{log.excerpt(lines)}"
        raise BuildError(what, hint="use a virtual environment that you can write to")
    if not is_installed(recipe):
        raise BuildError(
            f"{wheel.name} was installed, but llama_cpp/lib holds no libdflash of this build",
            hint="another llama_cpp comes first on Python's path: remove it",
        )
