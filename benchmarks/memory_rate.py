"""How much of a GPU's memory rate plain decoding reaches: the bytes of weights that a token reads, times tokens per
second, over the rate of the device's memory.

Usage: python benchmarks/memory_rate.py    (prints GB/s of copies within the first NVIDIA GPU)
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dflash_local.convert.gguf_metadata import read_header

# GB/s by the vendors' data sheets, by a part of the name that the driver gives.
RATES = (
    (r"\bH200\b", 4800.0),
    (r"\bH100 (80GB HBM3|SXM)", 3350.0),
    (r"\bA100-SXM4-80GB", 2039.0),
    (r"\bA100 80GB PCIe", 1935.0),
    (r"\bRTX 3090\b(?! Ti)", 936.0),
    (r"\bRTX 4090\b(?! D)", 1008.0),
)
SECONDS = 60.0  # for a measurement
SIZE, COPIES = 256 << 20, 20
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind


def bytes_per_token(target: Path) -> int:
    """Bytes of the weights that a pass of one row reads. Of an embedding that is not the head it reads one row. Experts
    are counted by the share that is used."""
    metadata, tensors = read_header(target)
    arch = bytes(metadata["general.architecture"].data).decode()
    used = 1.0
    if f"{arch}.expert_count" in metadata:
        used = metadata[f"{arch}.expert_used_count"].data / metadata[f"{arch}.expert_count"].data
    read = [tensor for name, tensor in tensors.items() if name != "token_embd.weight" or "output.weight" not in tensors]
    return sum(int(tensor.n_bytes * (used if "_exps." in tensor.name else 1)) for tensor in read)


def rate_of(devices: Sequence[str]) -> dict[str, Any] | None:
    """The memory rate of the only one of `devices` (names with descriptions), in GB/s, and where it comes from; None if
    there are none or several, or nothing is known."""
    if len(devices) != 1:
        return None
    for pattern, rate in RATES:
        if re.search(pattern, devices[0]):
            return {"device": devices[0], "gb_per_s": rate, "source": "data sheet"}
    measured = measure()
    return {"device": devices[0], "gb_per_s": measured, "source": "copies"} if measured else None


def measure() -> float | None:
    """GB/s of copies within the first NVIDIA GPU, in a separate process so that ours holds no device; None if that is
    not possible."""
    try:
        done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=SECONDS)
        return float(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        return None


def copies(cuda: Any) -> float:
    """GB/s of copies by CUDA's runtime, which read and write. Raises OSError."""

    def call(name: str, *arguments: Any) -> None:
        if status := getattr(cuda, name)(*arguments):
            raise OSError(f"{name} failed with status {status}")

    places = [ctypes.c_void_p(), ctypes.c_void_p()]
    for place in places:
        call("cudaMalloc", ctypes.byref(place), ctypes.c_size_t(SIZE))
    best = 0.0
    for _ in range(3):
        call("cudaDeviceSynchronize")
        start = time.perf_counter()
        for _ in range(COPIES):
            call("cudaMemcpy", *places, ctypes.c_size_t(SIZE), DEVICE_TO_DEVICE)
        call("cudaDeviceSynchronize")
        best = max(best, 2 * SIZE * COPIES / (time.perf_counter() - start) / 1e9)
    return best


def runtime() -> Any:
    """CUDA's runtime, of any version. Raises OSError."""
    for version in ("13", "12"):
        try:
            return ctypes.CDLL(f"libcudart.so.{version}")
        except OSError:
            continue
    raise OSError("libcudart is not here")


def share(n_bytes: int, tokens_per_second: float, rate: dict[str, Any]) -> float:
    return n_bytes * tokens_per_second / 1e9 / float(rate["gb_per_s"])


def words(shares: Sequence[dict[str, Any]], rate: dict[str, Any]) -> str:
    """A sentence for a record."""
    parts = [
        f"{one['ftype'].upper()} at temperature {one['temperature']:g}: {one['bytes_per_token'] / 1e9:.2f} GB a token, "
        f"{100 * one['share']:.0f} %"
        for one in shares
    ]
    where = f"{rate['device']}, {rate['gb_per_s']:,.0f} GB/s by {rate['source']}"
    return f"Share of the memory rate that plain decoding reaches ({where}): {'; '.join(parts)}."


if __name__ == "__main__":
    try:
        print(copies(runtime()))
    except OSError as error:
        sys.exit(f"error: {error}")
