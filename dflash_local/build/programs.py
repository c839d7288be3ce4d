"""Programs that test the built libraries on a device: our ops against float64 and the CPU, and llama.cpp's own test of
every ggml op. They need neither a compiler nor the network (`dflash-local build --out`).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from dflash_local.build.log import BuildLog
from dflash_local.errors import BuildError

NAMES = ("test_gdn_ops", "test-backend-ops")


def build(tests: Path, llama: Path, libraries: Path, work: Path, log: BuildLog) -> list[Path]:
    """Compile `NAMES` from `tests` (ggml_ops/tests) against `libraries`, in the folder `work`. To run, they need
    LD_LIBRARY_PATH. Raises BuildError."""
    if not (tests / "CMakeLists.txt").is_file():
        raise BuildError(f"{tests} has no test programs", hint="--out needs a checkout of dflash-local")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    cmake = shutil.which("cmake", path=path)
    if cmake is None:
        raise BuildError("cmake is not on PATH", hint="run: make setup-test")
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=path) else []
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DDFLASH_SANITIZE=OFF", "-DDFLASH_DEVICE_PROGRAMS=ON"]
    options += [f"-DLLAMA_SOURCE={llama}", f"-DDFLASH_LIBRARIES={libraries}"]
    configure = [cmake, "-S", str(tests), "-B", str(work), *generator, *options]
    for command in (configure, [cmake, "--build", str(work), "--parallel", str(os.cpu_count() or 1)]):
        status, lines = log.run(command, env={**os.environ, "PATH": path})
        if status != 0:
            raise BuildError(f"the test programs could not be built (log: {log.path})\n{log.excerpt(lines)}")
    return [work / name for name in NAMES]
