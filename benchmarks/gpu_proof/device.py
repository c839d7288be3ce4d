"""The machine's GPUs and driver, and the folders of the libraries that ggml's CUDA backend needs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Libraries of CUDA's runtime, besides the driver: in the toolkit, or in PyTorch's packages.
LIBRARY = re.compile(rb"(?<=\0)lib(?:cudart|cublas|cublasLt)\.so\.[0-9]+(?=\0)")
QUERY = "name,memory.total,driver_version,compute_cap,clocks.max.sm,clocks.max.memory"


class DeviceError(Exception):
    """There is no device, or a library that its backend needs is missing."""


@dataclass(frozen=True)
class Found:
    """The device: a line for the record, and folders of libraries."""

    text: str
    libraries: tuple[Path, ...] = ()


def look(device: str, built: Path) -> Found:
    """The device, and the folders of libraries that those in `built` need. Raises DeviceError."""
    if device == "cpu":
        return Found(f"a rehearsal on the CPU, {os.cpu_count()} threads, {platform.system()} {platform.release()}")
    line = "; ".join(gpus())
    return Found(line, tuple(dict.fromkeys(find(name).parent for name in needed(built))))


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
    done = subprocess.run(
        [program, f"--query-gpu={QUERY}", "--format=csv,noheader"], capture_output=True, text=True, timeout=60
    )
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
