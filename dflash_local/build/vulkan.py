"""Checks of a Vulkan build's requirements besides glslc: present and new enough? Run before minutes of compiling."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from dflash_local.errors import BuildError

# VK_EXT_layer_settings is the newest feature that the pinned ggml-vulkan uses.
NEEDED = (1, 3, 272)
_SHADER = "#version 450\nvoid main() {}\n"
_SYSTEM = ("/usr/local/include", "/usr/include", "/opt/homebrew/include", "/opt/local/include")
_HEADERS = (
    "install newer ones (libvulkan-dev of Debian 13, of Ubuntu 24.04, or LunarG's SDK), or unpack them anywhere "
    "and name the folder that holds vulkan/: dflash-local build --backend vulkan -- -DVulkan_INCLUDE_DIR=DIR"
)
_SPIRV = "install spirv-headers (Debian, Ubuntu), spirv-headers-devel (Fedora) or LunarG's SDK"


def check_toolkit(glslc: str, flags: Sequence[str]) -> str:
    """A description of the toolkit for the recipe; `flags` are CMake's. Raises BuildError with what is missing."""
    _check_glslc(glslc)
    folders = list(dict.fromkeys(_include_folders(flags)))
    core = next((file for folder in folders if (file := folder / "vulkan" / "vulkan_core.h").is_file()), None)
    if core is None:
        raise BuildError(f"--backend vulkan needs Vulkan headers {_dotted(NEEDED)} or newer, none found", hint=_HEADERS)
    version = header_version(core)
    if version < NEEDED:
        what = f"the Vulkan headers in {core.parent.parent} are {_dotted(version)}"
        raise BuildError(f"{what}; the build needs {_dotted(NEEDED)} or newer", hint=_HEADERS)
    names = ("spirv/unified1/spirv.hpp", "spirv-headers/spirv.hpp", "spirv.hpp")
    if not any((folder / name).is_file() for folder in folders for name in names):
        raise BuildError("--backend vulkan needs SPIRV-Headers (spirv/unified1/spirv.hpp), none found", hint=_SPIRV)
    return f"Vulkan headers {_dotted(version)}"


def header_version(core: Path) -> tuple[int, int, int]:
    """The version of vulkan_core.h; (0, 0, 0) if unknown."""
    text = core.read_text(encoding="utf-8", errors="replace")
    patch = re.search(r"(?m)^#define VK_HEADER_VERSION\s+(\d+)", text)
    api = re.search(r"(?m)^#define VK_HEADER_VERSION_COMPLETE\s+VK_MAKE_API_VERSION\(\d+, (\d+), (\d+),", text)
    return (int(api[1]), int(api[2]), int(patch[1])) if api and patch else (0, 0, 0)


def _check_glslc(glslc: str) -> None:
    # Some shaders need Vulkan 1.3, which older compilers do not support.
    command = [glslc, "--target-env=vulkan1.3", "-fshader-stage=compute", "-o", "-", "-"]
    try:
        process = subprocess.run(command, input=_SHADER.encode(), capture_output=True, timeout=30, check=False)
    except OSError as error:
        raise BuildError(f"{glslc} does not run: {error.strerror}", hint="repair or replace it") from None
    if process.returncode != 0:
        words = process.stderr.decode(errors="replace").strip().splitlines()
        what = f"{glslc} does not compile shaders for Vulkan 1.3 ({words[0] if words else 'it says nothing'})"
        raise BuildError(what, hint="the build needs glslc of shaderc 2022.1 or newer: install the Vulkan SDK's")


def _include_folders(flags: Sequence[str]) -> Iterator[Path]:
    """The search path of CMake's FindVulkan, in order."""
    found = (re.match(r"-D([\w.]+)(?::\w+)?=(.*)", flag) for flag in flags)
    given = {match[1]: match[2] for match in found if match}
    if folder := given.get("Vulkan_INCLUDE_DIR"):
        yield Path(folder)
    prefixes = [*given.get("CMAKE_PREFIX_PATH", "").split(";"), *_listed("CMAKE_PREFIX_PATH")]
    yield from (Path(prefix, "include") for prefix in prefixes if prefix)
    if sdk := os.environ.get("VULKAN_SDK"):
        yield from (Path(sdk, name) for name in ("include", "Include"))
    yield from map(Path, (*_listed("CPATH"), *_listed("CPLUS_INCLUDE_PATH"), *_SYSTEM))


def _listed(variable: str) -> list[str]:
    return [part for part in os.environ.get(variable, "").split(os.pathsep) if part]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
