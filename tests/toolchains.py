"""Compilers, emulators, drivers and containers for machines that this one is not, and the page's browser: their Debian
packages, and whether they are here.

    python -m tests.toolchains                     what is here, and what to install
    python -m tests.toolchains --install [NAME]    by apt-get, as root or by sudo without a password

`make test-all` installs them, CI the browser; where that cannot be, the tests that need them are skipped and say what
to do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Toolchain:
    """What one kind of machine needs: of each tuple of programs one must be on PATH."""

    programs: tuple[tuple[str, ...], ...]
    packages: tuple[str, ...]

    def missing(self) -> list[str]:
        """Programs that are not here."""
        return [" or ".join(names) for names in self.programs if not any(map(shutil.which, names))]

    @property
    def hint(self) -> str:
        """How to install it."""
        return f"Debian, Ubuntu: apt-get install {' '.join(self.packages)}"


TOOLCHAINS = {
    "arm": Toolchain(
        (("aarch64-linux-gnu-g++",), ("qemu-aarch64", "qemu-aarch64-static")),
        ("g++-aarch64-linux-gnu", "qemu-user-static"),
    ),
    "windows": Toolchain(
        (("x86_64-w64-mingw32-g++-posix",), ("wine",)),
        ("g++-mingw-w64-x86-64-posix", "wine", "wine64"),
    ),
    # tests/build/test_wheels.py: older distributions, and processors with fewer instructions.
    "wheels": Toolchain(
        (("debootstrap",), ("qemu-x86_64", "qemu-x86_64-static")),
        ("debootstrap", "qemu-user-static"),
    ),
    # tests/build/test_containers.py: podman takes runc where there is no crun.
    "containers": Toolchain(
        (("podman",), ("runc", "crun"), ("mmdebstrap",)),
        ("podman", "runc", "mmdebstrap"),
    ),
    # tests/page/
    "browser": Toolchain(
        (("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"),),
        ("chromium",),
    ),
    "vulkan": Toolchain((("glslc",),), ("mesa-vulkan-drivers", "glslc", "libvulkan-dev")),
}


# A mirror that does not answer ends, a package manager that is busy is waited for.
APT_OPTIONS = ("-qq", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::Retries=2", "-o", "DPkg::Lock::Timeout=300")


def install(names: list[str]) -> int:
    """Install what is missing. Returns apt-get's exit status; 0 too if nobody here may install, which is said."""
    needed = [TOOLCHAINS[name] for name in names if TOOLCHAINS[name].missing()]
    packages = [package for toolchain in needed for package in toolchain.packages]
    if not packages:
        return 0
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if not shutil.which("apt-get") or (as_root and not _may_sudo()):
        print(f"not installed, their tests are skipped: apt-get install {' '.join(packages)}", flush=True)
        return 0
    words = ["install", "--yes", "--no-install-recommends", *packages]
    print(" ".join([*as_root, "apt-get", *words]), flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # An image often comes without lists of packages. What they cannot be read for, the installation says.
    for step in (["update"], words):
        command = [*as_root, "apt-get", *APT_OPTIONS, *step]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        print(done.stdout[-2000:].strip(), f"not installed: {' '.join(packages)}", sep="\n", flush=True)
    return done.returncode


def _may_sudo() -> bool:
    return bool(shutil.which("sudo")) and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.toolchains", description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="install what is missing")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TOOLCHAINS)} (default: all)")
    args = parser.parse_args()
    if unknown := set(args.names) - set(TOOLCHAINS):
        parser.error(f"no toolchain {', '.join(sorted(unknown))}: there are {', '.join(TOOLCHAINS)}")
    names = args.names or list(TOOLCHAINS)
    status = install(names) if args.install else 0
    for name in names:
        missing = TOOLCHAINS[name].missing()
        print(f"{name}: {f'no {chr(44).join(missing)}: {TOOLCHAINS[name].hint}' if missing else 'here'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
