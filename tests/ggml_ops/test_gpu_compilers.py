"""The CUDA kernels compile for NVIDIA's and AMD's GPUs, wherever their compilers are. No GPU is needed, and none runs
them: that is what the emulation (test_native.py: gdn_cuda) and `make gpu-proof` are for.

Only what gdn/cuda uses of ggml-cuda's common header stands in for it: that header asks for cuBLAS or hipBLAS, too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from .native import REPO, llama_source

SOURCE = REPO / "ggml_ops" / "gdn" / "cuda" / "gdn_tree_cuda.cu"
KERNELS = ("gdn_tree_kernel", "gdn_commit_kernel")
FEW_ROWS = REPO / "ggml_ops" / "tests" / "cuda" / "few_rows_kernels.cu"
TOP_K = REPO / "ggml_ops" / "tests" / "cuda" / "top_k_kernels.cu"
HIP_PACKAGES = "apt install hipcc libamdhip64-dev rocm-device-libs"


def flags() -> list[str]:
    tests = REPO / "ggml_ops" / "tests"
    folders = [REPO / "ggml_ops", tests, tests / "cuda", llama_source() / "ggml" / "include"]
    return ["-std=c++17", "-O3", *(f"-I{folder}" for folder in folders)]


def compiled(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return done.stdout


def by_nvcc(arch: str, source: Path, out: Path) -> str:
    """What nvcc tells of the kernels."""
    nvcc = shutil.which("nvcc", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    if nvcc is None:
        pytest.skip("needs nvcc: the CUDA toolkit, on PATH or in /usr/local/cuda")
    target = [f"-gencode=arch=compute_{arch},code=sm_{arch}", "-use_fast_math", "-Xptxas", "-v"]
    return compiled([nvcc, *flags(), *target, "-c", str(source), "-o", str(out / "kernels.o")])


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["80", "86", "90", "120"])
def test_few_rows_by_nvcc(arch: str, tmp_path: Path) -> None:
    told = by_nvcc(arch, FEW_ROWS, tmp_path)
    spilled = re.findall(r"(\d+) bytes spill", told)
    assert len(spilled) == 2 * (6 + 7 * 16) and set(spilled) == {"0"}
    for n_tiles, most in ((1, 128), (2, 144), (4, 168), (8, 208)):  # a multiprocessor has 65536
        kernels = rf"entry function .\S*few_rows_kernelIL13few_rows_type\dELi{n_tiles}E.*?Used (\d+) registers"
        used = [int(n) for n in re.findall(kernels, told, re.DOTALL)]
        assert len(used) == 28 and max(used) <= most, (n_tiles, used)


@pytest.mark.parametrize("arch", ["86", "90"])
def test_top_k_by_nvcc(arch: str, tmp_path: Path) -> None:
    told = by_nvcc(arch, TOP_K, tmp_path)
    assert re.findall(r"(\d+) bytes spill", told) == ["0"] * 4 and told.count("Used") == 2


@pytest.mark.parametrize("arch", ["86", "90"])
def test_nvcc(arch: str, tmp_path: Path) -> None:
    told = by_nvcc(arch, SOURCE, tmp_path)
    for kernel in KERNELS:
        assert re.search(rf"Compiling entry function '\S*{kernel}\S*' for 'sm_{arch}'", told)
    assert re.findall(r"(\d+) bytes spill", told) == ["0"] * 2 * len(KERNELS)
    # The registers of a multiprocessor hold as many blocks of 128 threads as its shared memory does, and more.
    assert all(int(n) <= 64 for n in re.findall(r"Used (\d+) registers", told))


@dataclass(frozen=True)
class Hip:
    """Where a compiler for AMD's GPUs lies, with its headers and the bitcode of its library for the device."""

    compiler: str
    root: Path
    library: Path

    def assembly(self, arch: str, out: Path) -> str:
        """Of the kernels. A GPU that the library is too old for has calls in place of its functions."""
        known = (self.library / f"oclc_isa_version_{arch.removeprefix('gfx')}.bc").exists()
        found = [f"--rocm-device-lib-path={self.library}"] if known else ["-nogpulib"]
        target = ["-x", "hip", f"--rocm-path={self.root}", f"--offload-arch={arch}", *found]
        compiled([self.compiler, *target, *flags(), "--cuda-device-only", "-S", str(SOURCE), "-o", str(out)])
        return out.read_text()


def find_hip() -> Hip | None:
    """ROCm's own folder, or Debian's packages."""
    roots = [Path(os.environ.get("ROCM_PATH", "/opt/rocm")), Path("/usr")]
    root = next((root for root in roots if (root / "include" / "hip" / "hip_runtime.h").exists()), None)
    if root is None:
        return None
    libraries = [root / "amdgcn" / "bitcode", *root.glob("lib/*/amdgcn/bitcode")]
    compilers = [str(root / "llvm" / "bin" / "clang++"), *(f"clang++-{n}" for n in range(15, 30)), "clang++"]
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    library = next(filter(Path.is_dir, libraries), None)
    return Hip(compiler, root, library) if compiler and library else None


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100"])
def test_hip(arch: str, tmp_path: Path) -> None:
    hip = find_hip()
    if hip is None:
        pytest.skip(f"needs clang, HIP's headers and the device library (Debian, Ubuntu: {HIP_PACKAGES})")
    assembly = hip.assembly(arch, tmp_path / "kernels.s")
    assert f"amdgcn-amd-amdhsa--{arch}" in assembly
    for kernel in KERNELS:
        assert re.search(rf"\.amdhsa_kernel \S*{kernel}", assembly)
    assert assembly.count("s_barrier") >= SOURCE.read_text().count("__syncthreads()")
