"""Kernels for 64-bit ARM, cross-compiled and run under an emulator: processors with NEON only, with dotprod, and with
i8mm."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream, apply_patches, cache_dir

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


def find_emulator() -> str | None:
    return shutil.which(EMULATOR) or shutil.which(f"{EMULATOR}-static")


pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and find_emulator()),
    reason=f"needs {COMPILER} and {EMULATOR} (Debian, Ubuntu: apt install g++-aarch64-linux-gnu qemu-user-static)",
)


@pytest.fixture(scope="module")
def programs(repo: Path) -> Path:
    """The folder of the native tests, built for ARM. Kept in the cache: once ggml is there, only what changed in
    ggml_ops is compiled."""
    version = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    patches = [
        file.read_text() for file in (repo / "patches" / "UPSTREAM", *sorted((repo / "patches").glob("*.patch")))
    ]
    home = (cache_dir() / "cross").resolve() / hashlib.sha256(
        "".join([str(repo), version, *patches]).encode()
    ).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    with (home / "lock").open("w") as lock, BuildLog(home / "log") as log:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "tree").is_dir():
            upstream = Upstream.read(repo / "patches" / "UPSTREAM")
            shutil.rmtree(home / "unpacked", ignore_errors=True)
            upstream.unpack(upstream.fetch(log), home / "unpacked")
            apply_patches(repo / "patches", home / "unpacked")
            (home / "unpacked").rename(home / "tree")
        configure = ["cmake", "-G", "Ninja", "-S", str(repo / "ggml_ops" / "tests" / "arm"), "-B", str(home / "build")]
        configure += ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"]
        configure += [f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DCMAKE_C_COMPILER={COMPILER.replace('g++', 'gcc')}"]
        configure += [f"-DVENDOR={home / 'tree' / 'vendor' / 'llama.cpp'}"]
        for command in (configure, ["cmake", "--build", str(home / "build")]):
            status, lines = log.run(command, env=environment)
            assert status == 0, log.excerpt(lines)
    return home / "build"


def run(program: Path, processor: str, *arguments: str) -> str:
    emulator = find_emulator()
    assert emulator
    done = subprocess.run(
        [emulator, "-cpu", processor, str(program), *arguments], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_panels_dotprod(programs: Path) -> None:
    """The choice at run time: what this processor lacks would end the program."""
    assert "\n7 kernels" in "\n" + run(programs / "test_panels", "cortex-a76")


def test_no_panels_without_dotprod(programs: Path) -> None:
    assert "\n0 kernels" in "\n" + run(programs / "test_panels", "cortex-a72")


@pytest.mark.slow
def test_panels_i8mm(programs: Path) -> None:
    """The same bits as with dotprod, for all 7 types."""
    assert "\n14 kernels" in "\n" + run(programs / "test_panels", "max")


@pytest.mark.parametrize("processor", ["cortex-a72", pytest.param("max", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["attention_no_flash", "flash_attention", "products"])
def test_ops(programs: Path, name: str, processor: str) -> None:
    """Through ggml's CPU backend: attention with and without flash attention, products with float weights and with
    panels."""
    run(programs / f"test_{name}", processor)


@pytest.mark.parametrize("processor", ["cortex-a76", pytest.param("cortex-a72", marks=pytest.mark.slow)])
def test_op_fusion(programs: Path, processor: str) -> None:
    run(programs / "test_op_fusion", processor, "1")
