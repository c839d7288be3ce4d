"""Compiling a CMake project besides the wheel, with the CMake and ninja of this environment."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from dflash_local.build.log import BuildLog
from dflash_local.build.recipe import UNWANTED
from dflash_local.errors import BuildError


def compile_with_cmake(
    what: str, source: Path, folder: Path, options: Sequence[str], log: BuildLog, *targets: str
) -> None:
    """Configure `source` with `options`, flags and variables of the environment (NAME=VALUE), and compile it in
    `folder`. Raises BuildError: `what` could not be built."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    cmake = shutil.which("cmake", path=path)
    if cmake is None:
        raise BuildError("cmake is not on PATH", hint="run: make setup-test")
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=path) else []
    flags = [option for option in options if option.startswith("-")]
    env = {**os.environ, "PATH": path, **dict(option.split("=", 1) for option in options if option not in flags)}
    env.pop(UNWANTED, None)
    configure = [cmake, "-S", str(source), "-B", str(folder), *generator, *flags]
    for command in (configure, [cmake, "--build", str(folder), "--parallel", str(os.cpu_count() or 1), *targets]):
        status, lines = log.run(command, env=env)
        if status != 0:
            raise BuildError(f"{what} could not be built (log: {log.path})\n{log.excerpt(lines)}")
