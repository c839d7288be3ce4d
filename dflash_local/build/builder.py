"""`build()`: make and install the patched llama.cpp, with as little work as possible.

Everything that the wheel depends on goes into one key (recipe.py). The installed build has its key, so that a build
with nothing to do only compares keys. The cache has one wheel per key, so that a second environment needs no compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_local.build.bundle import check_place, make_bundle
from dflash_local.build.folder_errors import cache_errors
from dflash_local.build.installation import install, is_installed
from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import detect_backend, make_recipe
from dflash_local.build.upstream import native_source
from dflash_local.build.wheel import cached_wheel, make_wheel
from dflash_local.cache_dir import cache_dir
from dflash_local.file_lock import locked


def build(
    backend: str = "auto",
    cuda_arch: str | None = None,
    cmake_flags: tuple[str, ...] = (),
    *,
    force: bool = False,
    out: Path | None = None,
    python: str | None = None,
    installs: bool = True,
) -> bool:
    """Make sure that this environment has the patched build for these arguments. Returns False if it already had.

    `force` compiles again even if a wheel is cached. Without `installs`, the wheel is only put into the cache. With
    `out`, nothing is installed: that folder gets the wheel and all that is needed to run and test it on another machine
    with Python version `python` (bundle.py). Raises BuildError.
    """
    why = ""
    if backend == "auto":
        backend, why = ("cuda", "--cuda-arch was given") if cuda_arch else detect_backend()
    source = native_source()
    recipe = make_recipe(source, backend, cuda_arch, cmake_flags)
    line = f"backend {backend}{f' ({why})' if why else ''}, build {recipe.key}"
    if out is None and not force and is_installed(recipe):
        print(f"{line}: up to date")
        return False
    cache = cache_dir()
    with cache_errors(cache), cache_lock(cache):
        if out is None and not force and is_installed(recipe):
            return False
        if out is not None:
            check_place(out)
        with BuildLog(cache / "logs" / f"{recipe.key}.log") as log:
            log.say(line)
            wheel = cached_wheel(recipe, cache)
            if wheel is None or force:
                wheel = make_wheel(recipe, source, cache, log, force=force)
            if out is not None:
                make_bundle(recipe, wheel, source, cache, out.resolve(), log, python)
            elif installs:
                install(wheel, recipe, log)
                log.say(f"installed in {log.seconds:.0f} s (log: {log.path})")
    return True


@contextmanager
def cache_lock(cache: Path) -> Iterator[None]:
    """One build per cache at a time."""
    with locked(cache / "build.lock", lambda: print("waiting for another build to end", flush=True)):
        yield
