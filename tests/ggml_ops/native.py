"""The CMake project of native tests (ggml_ops/tests): configured, compiled, listed.

`python -m tests.ggml_ops.native` compiles what has changed, for ARM only where that was compiled before; with `--all`
the programs of slow tests and of measurements too, and for ARM wherever its compiler is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dflash_local import native
from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream, apply_patches, sha256
from dflash_local.cache_dir import cache_dir
from dflash_local.file_lock import locked
from tests.toolchains import TOOLCHAINS

REPO = Path(__file__).resolve().parents[2]
SOURCES_KEPT = 3
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    # What one checkout has compiled, ccache finds for the next one: paths are relative to it.
    "CCACHE_BASEDIR": str(REPO),
    "CCACHE_NOHASHDIR": "1",
}


@dataclass(frozen=True)
class NativeTest:
    name: str
    slow: bool


@dataclass(frozen=True)
class Project:
    """A build folder of ggml_ops/tests."""

    folder: Path
    options: tuple[str, ...]

    def configure(self, *more: str) -> None:
        """Quick when nothing has changed; `more` options are remembered. Raises RuntimeError with CMake's words."""
        command = ["cmake", "-S", str(REPO / "ggml_ops" / "tests"), "-B", str(self.folder), "-G", "Ninja"]
        with locked(self.folder / "lock"):  # while ninja compiles, CMake would take its log of what is done from it
            run([*command, f"-DLLAMA_SOURCE={llama_source()}", *more, *self.options])

    def build(self, slow: bool = False) -> None:
        """Compile what has changed since the last time, `slow` the programs of slow tests too. Raises RuntimeError with
        the compiler's words."""
        self.configure(f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache') or ''}")
        targets = ["all", "slow_programs"] if slow else ["all"]
        with locked(self.folder / "lock"):
            run(["cmake", "--build", str(self.folder), "--target", *targets])
        (self.folder / "built").touch()

    @property
    def is_built(self) -> bool:
        """Whether it was compiled before; since then files may have changed."""
        return (self.folder / "built").is_file()

    def tests(self) -> list[NativeTest]:
        """Of a configured project."""
        listing = json.loads(run(["ctest", "--test-dir", str(self.folder), "--show-only=json-v1"]))
        found = []
        for test in listing["tests"]:
            labels = [entry["value"] for entry in test["properties"] if entry["name"] == "LABELS"]
            found.append(NativeTest(test["name"], labels == [["slow"]]))
        return found

    def run(self, name: str) -> None:
        """Run one test of a built project. Raises RuntimeError with what it printed."""
        run(["ctest", "--test-dir", str(self.folder), "--output-on-failure", "--tests-regex", f"^{name}$"])


def host(folder: str = "native") -> Project:
    """The tests for this machine, against the libraries beside libdflash, below build/."""
    libraries = native.library_path().parent
    return Project(REPO / "build" / folder, (f"-DDFLASH_LIBRARIES={libraries}", "-DDFLASH_SANITIZE=ON"))


def arm() -> Project | None:
    """The tests of ops and kernels for 64-bit ARM, run under an emulator; None without compiler or emulator.

    Kept in the cache: once ggml is there, only what changed in ggml_ops is compiled.
    """
    toolchain = TOOLCHAINS["arm"]
    if toolchain.missing():
        return None
    (compiler,), emulators = toolchain.programs
    emulator = next(filter(None, map(shutil.which, emulators)))
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"]
    options += [f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_C_COMPILER={compiler.replace('g++', 'gcc')}"]
    version = run([compiler, "--version"])
    key = hashlib.sha256(f"{REPO}{version}{llama_source()}".encode()).hexdigest()[:16]
    return Project((cache_dir() / "cross").resolve() / key, (*options, f"-DDFLASH_EMULATOR={emulator}"))


def llama_source() -> Path:
    """llama.cpp of the pinned package with our patches, unpacked once into the cache."""
    patches = REPO / "patches"
    files = [patches / "UPSTREAM", *sorted(patches.glob("*.patch"))]
    key = hashlib.sha256("".join(map(sha256, files)).encode()).hexdigest()[:16]
    home = (cache_dir() / "source").resolve()  # a link while tests run
    tree = home / key
    with locked(home / "lock"):
        if not tree.is_dir():
            for old in sorted(home.glob("*/"), key=lambda folder: folder.stat().st_mtime)[: 1 - SOURCES_KEPT]:
                shutil.rmtree(old)
            scratch = home / "unpacked"
            shutil.rmtree(scratch, ignore_errors=True)
            with BuildLog(home / "log") as log:
                upstream = Upstream.read(patches / "UPSTREAM")
                upstream.unpack(upstream.fetch(log), scratch)
                apply_patches(patches, scratch)
            scratch.rename(tree)
    return tree / "vendor" / "llama.cpp"


def run(command: list[str]) -> str:
    """What it prints. Raises RuntimeError with that if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ggml_ops.native", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="the programs of slow tests too, and for ARM")
    everything = parser.parse_args().all
    print("compiling what has changed of the native tests", flush=True)
    try:
        host().build(slow=everything)
        if (cross := arm()) and (everything or cross.is_built):
            cross.build(slow=everything)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
