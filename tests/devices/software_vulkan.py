"""Mesa's software Vulkan as a device for tests: what it needs is found, fetched aside, checked.

`python -m tests.devices.software_vulkan` prints the arguments for CMake with which `dflash-local build --backend
vulkan` builds here. Drivers, glslc and the loader are the system's own; headers that are too old are replaced by those
of a newer Debian release, unpacked into the cache folder by apt as an ordinary user, from the mirror that the machine
uses and with the signatures that it trusts.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import sys
from pathlib import Path

from dflash_local.build import debian_packages
from dflash_local.build.vulkan import NEEDED, check_toolkit, header_version
from dflash_local.cache_dir import cache_dir
from dflash_local.errors import BuildError
from tests.toolchains import TOOLCHAINS

RELEASE = "trixie"  # the first Debian whose headers are new enough
PACKAGES = ("libvulkan-dev", "spirv-headers")
SYSTEM_PACKAGES = TOOLCHAINS["vulkan"].hint
DRIVERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
# llama.cpp leaves out devices of type CPU unless they are named.
ENVIRONMENT = {"GGML_VK_VISIBLE_DEVICES": "0"}


class MissingError(Exception):
    """What the machine lacks, and how to install it."""


def environment() -> dict[str, str]:
    """For a process that shall see the software device and no other. Raises MissingError."""
    driver = next((file for folder in DRIVERS for file in sorted(Path(folder).glob("lvp_icd*.json"))), None)
    if driver is None:
        raise MissingError(f"no software Vulkan driver (lvp_icd*.json): {SYSTEM_PACKAGES}")
    if ctypes.util.find_library("vulkan") is None:
        raise MissingError(f"no Vulkan loader: {SYSTEM_PACKAGES}")
    return {**os.environ, **ENVIRONMENT, "VK_DRIVER_FILES": str(driver), "VK_ICD_FILENAMES": str(driver)}


def cmake_flags() -> list[str]:
    """Those that a build of the backend needs here; newer headers are fetched once. Raises MissingError."""
    glslc = shutil.which("glslc")
    if glslc is None:
        raise MissingError(f"no glslc on PATH: {SYSTEM_PACKAGES}")
    try:
        check_toolkit(glslc, ())
        return []
    except BuildError as old:
        flags = [f"-DCMAKE_PREFIX_PATH={_newer_headers(old)}"]
    try:
        check_toolkit(glslc, flags)
    except BuildError as error:
        raise MissingError(f"{error.message}: {error.hint}") from None
    return flags


def _newer_headers(why: BuildError) -> Path:
    """The prefix that they lie in, in the cache folder."""
    home = cache_dir() / "vulkan-headers"
    core = home / "usr" / "include" / "vulkan" / "vulkan_core.h"
    if not (core.is_file() and header_version(core) >= NEEDED):
        if not debian_packages.can_fetch():
            raise MissingError(f"{why.message}: {why.hint}")
        try:
            debian_packages.fetch(RELEASE, PACKAGES, home)
        except BuildError as error:
            raise MissingError(f"{why.message} (and newer ones cannot be had: {error.message}): {why.hint}") from None
    return home / "usr"


def main() -> int:
    """Print the arguments."""
    try:
        environment()
        flags = cmake_flags()
    except MissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(" ".join(flags))
    return 0


if __name__ == "__main__":
    sys.exit(main())
