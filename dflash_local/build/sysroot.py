"""The C library of an older Debian, to link a portable wheel against (inject.cmake, `DFLASH_SYSROOT`).

A program starts only where the C library has all function versions that it was linked to. This concerns only linking,
so the machine's own compiler and headers are used.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from dflash_local.build import debian_packages
from dflash_local.build.log import BuildLog
from dflash_local.errors import BuildError

OLDEST = (2, 28)  # glibc of the Linux distributions since 2019, and of `manylinux_2_28`
RELEASE = "bullseye"  # the oldest Debian that mirrors still have; glibc/older_glibc.c bridges the rest
PACKAGES = ("libc6", "libc6-dev")
FLAG = "-DDFLASH_SYSROOT="  # in a recipe with the release's name, which is in every wheel; the compiler gets the folder
IMAGE = "PyPA's container image manylinux_2_28"


def older_glibc(cache: Path, log: BuildLog) -> Path | None:
    """The folder to link against, fetched once into the cache; None if this machine's own C library is old enough or
    not glibc. Raises BuildError."""
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc" or _own_version() <= OLDEST:
        return None
    home = _home(cache, RELEASE)
    if not home.is_dir():
        log.say(f"libraries of Debian {RELEASE}, to link against")
        if not debian_packages.can_fetch():
            version = ".".join(map(str, _own_version()))
            raise BuildError(
                f"a portable wheel cannot be linked against this machine's glibc {version}, and older ones are fetched "
                "with Debian's apt-get only",
                hint=f"build in {IMAGE}, or leave --portable out",
            )
        debian_packages.fetch(RELEASE, PACKAGES, home, _make_relative)
    return home


def with_folder(flag: str, cache: Path) -> str:
    """A recipe's flag as the compiler gets it."""
    return f"{FLAG}{_home(cache, flag.removeprefix(FLAG)).as_posix()}" if flag.startswith(FLAG) else flag


def _home(cache: Path, release: str) -> Path:
    return cache / "sysroot" / release


def _own_version() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.libc_ver()[1].split("."))


def _make_relative(root: Path) -> None:
    """Absolute links would lead out of the folder."""
    for link in [path for path in root.rglob("*") if path.is_symlink()]:
        target = link.readlink()
        if target.is_absolute():
            link.unlink()
            link.symlink_to(os.path.relpath(root / target.relative_to("/"), link.parent))
