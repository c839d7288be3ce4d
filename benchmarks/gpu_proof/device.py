"""The machine's GPUs and driver, and the folders of the libraries that ggml's CUDA backend needs."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Libraries of CUDA's runtime, besides the driver: in the toolkit, or in PyTorch's packages.
LIBRARY = re.compile(rb"(?<=\0)lib(?:cudart|cublas|cublasLt)\.so\.[0-9]+(?=\0)")
QUERY = "name,memory.total,driver_version,compute_cap,clocks.max.sm,clocks.max.memory"
CAPABILITY = 3  # its place in QUERY
ARCHITECTURES = "-DCMAKE_CUDA_ARCHITECTURES="
ARCHITECTURE = re.compile(r"(?P<number>\d+)(?P<letter>[af]?)(?P<only>-real|-virtual|)")  # of CMake's list
SECONDS = 60.0  # of a program that only looks
# ggml names a device only if its driver, its runtime and our libraries fit together.
TELL_DEVICES = """
import json
from dflash_local import native
print()
print(json.dumps([device["name"] for device in native.library_info()["devices"]]))
"""


class DeviceError(Exception):
    """There is no device, or a library that its backend needs is missing."""


@dataclass(frozen=True)
class Found:
    """The device: a line for the record, and folders of libraries."""

    text: str
    libraries: tuple[Path, ...] = ()


def look(device: str, built: Path, flags: Sequence[str] = ()) -> Found:
    """The device, and the folders of libraries that those in `built` need. `flags`: of the build. Raises
    DeviceError."""
    if device == "cpu":
        return Found(f"a rehearsal on the CPU, {os.cpu_count()} threads, {platform.system()} {platform.release()}")
    lines = gpus()
    if note := check_architecture(lines, flags):
        print(note, flush=True)
    return Found("; ".join(lines), tuple(dict.fromkeys(find(name).parent for name in needed(built))))


def check_architecture(gpus: Sequence[str], flags: Sequence[str]) -> str:
    """Is there code for one of the GPUs (lines of `gpus`; CUDA's order is another) in a build with these flags? Returns
    a note if the driver has to compile it; "" if not. Raises DeviceError."""
    built = next((flag.removeprefix(ARCHITECTURES) for flag in reversed(flags) if flag.startswith(ARCHITECTURES)), "")
    codes = [code for code in map(ARCHITECTURE.fullmatch, built.split(";")) if code]
    capabilities = [[word.strip() for word in gpu.split(",")][CAPABILITY] for gpu in gpus]
    if not codes or not all(re.fullmatch(r"\d+\.\d", capability) for capability in capabilities):
        return ""
    here = [int(capability.replace(".", "")) for capability in capabilities]
    if any(is_ready(code, number) for code in codes for number in here):
        return ""
    if later := [number for number in here if any(is_compiled(code, number) for code in codes)]:
        return (
            f"the bundle has code for {built}: the driver compiles it for this GPU when a program first uses it, which "
            f"takes time and may be slower than code of its own (--cuda-arch {later[0]})"
        )
    raise DeviceError(
        f"the bundle has code for {built}, not for this GPU ({'; '.join(gpus)}): make one with --cuda-arch {here[0]}"
    )


def is_ready(code: re.Match[str], capability: int) -> bool:
    """Does a GPU run this machine code, which is for its generation?"""
    number = int(code["number"])
    return code["only"] != "-virtual" and number // 10 == capability // 10 and number <= capability


def is_compiled(code: re.Match[str], capability: int) -> bool:
    """Does the driver compile it? A plain architecture has PTX, too, which is for all later GPUs unless it has a
    letter."""
    return code["only"] != "-real" and not code["letter"] and int(code["number"]) <= capability


def check_seen(name: str, environment: Mapping[str, str]) -> None:
    """Does ggml see the device of this name? Else all layers would stay on the CPU, and its figures would be called the
    device's. Raises DeviceError."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", TELL_DEVICES], env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise DeviceError(f"the bundle's libraries did not name their devices within {SECONDS:.0f} s") from None
    said = " ".join(done.stderr.split())[-500:]
    if done.returncode != 0:
        raise DeviceError(f"the bundle's libraries cannot be loaded: {said}")
    if name not in (names := json.loads(done.stdout.splitlines()[-1])):
        seen = ", ".join(names) or "nothing"
        raise DeviceError(f"the bundle's libraries see {seen}, not {name}; is the driver too old? {said}")


def needed(built: Path) -> list[str]:
    """The names of runtime libraries that ggml's CUDA backend needs, with major version. Raises DeviceError."""
    library = built / "libggml-cuda.so"
    if not library.is_file():
        raise DeviceError("the bundle was built without CUDA: make one with --backend cuda, or rehearse: --device cpu")
    names = sorted({name.decode() for name in LIBRARY.findall(library.read_bytes())})
    # cuBLAS needs cuBLASLt of the same version.
    return [*names, *(name.replace("cublas", "cublasLt") for name in names if name.startswith("libcublas.so"))]


def gpus() -> list[str]:
    """A line for each GPU, in nvidia-smi's words. Raises DeviceError."""
    program = shutil.which("nvidia-smi") or next(Path("/usr/local/nvidia/bin").glob("nvidia-smi"), None)
    if program is None:
        raise DeviceError("nvidia-smi is not here: no NVIDIA driver? (--device cpu rehearses without one)")
    try:
        done = subprocess.run(
            [program, f"--query-gpu={QUERY}", "--format=csv,noheader"], capture_output=True, text=True, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"nvidia-smi does not run: {error}") from None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or not lines:
        raise DeviceError(f"nvidia-smi finds no GPU: {(done.stderr or done.stdout).strip()}")
    return lines


def find(name: str) -> Path:
    """The folder of a library, of the loader, the toolkit or a Python package. Raises DeviceError."""
    for folder in folders():
        if (folder / name).exists():
            return folder / name
    raise DeviceError(
        f"{name} is not on this machine: install that CUDA runtime or a PyTorch of its version, or name its folder in "
        "LD_LIBRARY_PATH"
    )


def folders() -> Iterator[Path]:
    """Possible folders of libraries, explicitly named ones first."""
    yield from (Path(name) for name in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if name)
    root = Path("/")
    for pattern in ("usr/local/cuda*/lib64", "usr/lib/*-linux-gnu"):
        yield from root.glob(pattern)
    # Packages of this Python, and of others that usually have PyTorch.
    packages = [Path(entry) for entry in sys.path]
    for pattern in (
        "opt/*/lib/python*/site-packages",
        "opt/*/.venv/lib/python*/site-packages",
        "usr/local/lib/python*/*-packages",
    ):
        packages += root.glob(pattern)
    for folder in packages:
        yield from folder.glob("nvidia/*/lib")
