"""Programs that test the built libraries on a device: our ops against float64 and the CPU, and llama.cpp's own test of
every ggml op. They need neither a compiler nor the network (`dflash-local build --out`).
"""

from __future__ import annotations

from pathlib import Path

from dflash_local.build.cmake import compile_with_cmake
from dflash_local.build.log import BuildLog
from dflash_local.errors import BuildError

NAMES = ("test_gdn_ops", "test-backend-ops")


def build(tests: Path, llama: Path, libraries: Path, work: Path, log: BuildLog) -> list[Path]:
    """Compile `NAMES` from `tests` (ggml_ops/tests) against `libraries`, in the folder `work`. To run, they need
    LD_LIBRARY_PATH. Raises BuildError."""
    if not (tests / "CMakeLists.txt").is_file():
        raise BuildError(f"{tests} has no test programs", hint="--out needs a checkout of dflash-local")
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DDFLASH_SANITIZE=OFF", "-DDFLASH_DEVICE_PROGRAMS=ON"]
    options += [f"-DLLAMA_SOURCE={llama}", f"-DDFLASH_LIBRARIES={libraries}"]
    compile_with_cmake("the test programs", tests, work, options, log)
    return [work / name for name in NAMES]
