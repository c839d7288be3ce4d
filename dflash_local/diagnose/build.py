"""Is the installed build the right one for this checkout, this processor and these devices, and does it load?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from dflash_local import __version__, native
from dflash_local.build import installed_build, recipe
from dflash_local.build.upstream import native_source
from dflash_local.diagnose.finding import Finding, fail, ok, warn
from dflash_local.errors import BuildError, DFlashError
from dflash_local.machine.devices import ADVICE, gpus, software_devices
from dflash_local.machine.hardware import cpu_flags
from dflash_local.words import memory_text

# /proc/cpuinfo's name -> ggml's: instruction sets that matter for the speed of quantized matrices, or crash the process
# if missing.
CPU_FEATURES = {
    "avx": "AVX",
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "bmi2": "BMI2",
    "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_vbmi": "AVX512_VBMI",
    "avx512_bf16": "AVX512_BF16",
    "amx_int8": "AMX_INT8",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
    "sve": "SVE",
}
BUILD = "dflash-local build"


def look_at_build() -> Iterator[Finding]:
    """Compare the stamp of `dflash-local build` with this processor, this checkout and the devices here."""
    yield ok("dflash-local", __version__)
    if override := os.environ.get("DFLASH_LIBRARY"):
        yield warn("build", f"DFLASH_LIBRARY points at {override}", "unset it to use the installed build")
        return
    stamp = installed_build.installed_stamp()
    if stamp is None:
        yield fail(
            "build", "no patched llama.cpp is installed here (a stock llama-cpp-python does not count)", f"run: {BUILD}"
        )
        return
    backend = str(stamp.get("backend"))
    yield ok("build", f"{stamp.get('version')}, backend {backend}, {' '.join(stamp.get('flags', []))}")
    try:
        source = native_source()
        current = recipe.make_recipe(source, backend)
        if (current.native, current.patches) != (stamp.get("native"), stamp.get("patches")):
            yield warn(
                "build",
                f"patches/ or ggml_ops/ in {source} have changed since this build",
                f"run: {BUILD} --backend {backend}",
            )
    except BuildError:
        pass  # no compiler: nothing could be rebuilt, and the installed build runs without one
    best, why = recipe.detect_backend()
    if backend == "cpu" and best != "cpu":
        yield warn("build", f"the build is for the CPU, but {why}", f"run: {BUILD} --backend {best}")
    compiled = str(stamp.get("machine", ""))
    if missing := [flag for flag in CPU_FEATURES if flag in compiled.split() and flag not in cpu_flags()]:
        yield fail(
            "build",
            f"it uses instructions that this processor lacks: {', '.join(missing)}",
            f"build on this machine: {BUILD} --force",
        )


def look_at_library(info: dict[str, Any]) -> Iterator[Finding]:
    """Load libdflash; its `library_info` is added to `info`."""
    try:
        info.update(native.library_info())
    except DFlashError as error:
        yield fail("library", error.message, error.hint or f"run: {BUILD}")
        return
    yield ok("library", f"ABI {info['abi']}, llama.cpp {info.get('llama', 'unknown')}, {native.library_path()}")
    yield ok("backends", ", ".join(info["backends"]) or "none")
    if variant := info.get("cpu_variant"):
        yield ok("cpu variant", f"{variant}, of {', '.join(cpu_variants())}")
    for device in info["devices"]:
        size = (
            f", {memory_text(device['memory_free'])} of {memory_text(device['memory_total'])} free"
            if device["memory_total"]
            else ""
        )
        yield ok("device", f"{device['name']} ({device['type']}): {device['description']}{size}")
    for device in software_devices(info):
        yield warn("device", f"{device['name']} is a driver that computes on the CPU", ADVICE)
    if set(info["backends"]) - {"CPU", "BLAS", "RPC"} and not gpus(info):
        advice = (
            "check the driver (nvidia-smi, rocminfo, vulkaninfo) and the container's device access; until then "
            "everything runs on the CPU"
        )
        yield warn("device", "a GPU backend is loaded, but it found no GPU", advice)
    yield from look_at_cpu_features(info.get("features", {}).get("CPU", {}), cpu_flags())


def cpu_variants() -> list[str]:
    """The CPU backend's variants in the build; empty if it has only one."""
    names = (file.stem.removeprefix("lib") for file in native.library_path().parent.glob("*ggml-cpu-*"))
    return sorted(name.removeprefix("ggml-cpu-") for name in names)


def look_at_cpu_features(compiled: dict[str, str], here: Iterable[str]) -> Iterator[Finding]:
    """Compare the features that the CPU code was compiled for (ggml's names) with this processor's (Linux's names)."""
    used = [name for name in CPU_FEATURES.values() if compiled.get(name, "0") != "0"]
    unused = [name for flag, name in CPU_FEATURES.items() if flag in here and name not in used]
    # ggml reports AVX_VNNI only without AVX512_VNNI.
    if "AVX512_VNNI" in used and "AVX_VNNI" in unused:
        unused.remove("AVX_VNNI")
    if unused:
        text = f"compiled without {', '.join(unused)}, which this processor has"
        yield warn("cpu features", text, f"build on this machine without -DGGML_NATIVE=OFF: {BUILD} --force")
    else:
        yield ok("cpu features", ", ".join(used) or "none that matter")
