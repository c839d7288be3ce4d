"""`make_wheels()`: a folder from which pip installs dflash-local and its native part, without a compiler."""

from __future__ import annotations

from pathlib import Path

from dflash_local.build.builder import cache_lock
from dflash_local.build.folder_errors import cache_errors, folder_errors
from dflash_local.build.log import BuildLog
from dflash_local.build.own_wheel import make_own_wheel
from dflash_local.build.recipe import detect_backend, make_recipe
from dflash_local.build.repair import check_auditwheel, repair
from dflash_local.build.sysroot import FLAG, older_glibc
from dflash_local.build.upstream import native_source
from dflash_local.build.wheel import cached_wheel, make_wheel
from dflash_local.cache_dir import cache_dir

_OTHER_FOLDER = "name a folder that can be written: --out DIR"


def make_wheels(
    out: Path,
    backend: str = "cpu",
    cuda_arch: str | None = None,
    cmake_flags: tuple[str, ...] = (),
    *,
    portable: bool = False,
    force: bool = False,
) -> list[Path]:
    """Make two wheels in the folder `out`: the patched llama-cpp-python with all variants of the CPU backend, and
    dflash-local, which depends on exactly that one.

    With `portable`, the first also runs on machines with an older C library (sysroot.py). `force` compiles again even
    if it is cached. Raises BuildError.
    """
    check_auditwheel()
    if backend == "auto":
        backend = "cuda" if cuda_arch else detect_backend()[0]
    source, cache = native_source(), cache_dir()
    with folder_errors(out, _OTHER_FOLDER):
        out.mkdir(parents=True, exist_ok=True)
    with cache_errors(cache), cache_lock(cache), BuildLog(cache / "logs" / f"wheel-{backend}.log") as log:
        sysroot = older_glibc(cache, log) if portable else None
        flags = (*cmake_flags, f"{FLAG}{sysroot.name}") if sysroot else cmake_flags
        recipe = make_recipe(source, backend, cuda_arch, flags, any_machine=True)
        log.say(f"backend {backend}, for any processor, build {recipe.key}")
        wheel = cached_wheel(recipe, cache)
        if wheel is None or force:
            wheel = make_wheel(recipe, source, cache, log, force=force)
        log.say("step 4/4: the wheels")
        with folder_errors(out, _OTHER_FOLDER):
            native = repair(wheel, out, log)
            made = [native, make_own_wheel(source, native, backend, out, log)]
        for file in made:
            log.say(f"  {file.name}  {file.stat().st_size / 1e6:.1f} MB")
        log.say(f"to install them: pip install dflash-local --find-links {out}")
    return made
