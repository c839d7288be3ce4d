"""A copy of the checkout with builds of its own, in which mutants live and tests run."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.gpu_proof.unpacked import link_package
from dflash_local import native
from tests.ggml_ops.native import llama_source
from tests.mutants.mutant import NATIVE, Mutant, MutantError

REPO = Path(__file__).resolve().parents[2]
# pytest's statuses: all passed, some failed. Others are no verdict, but a crash is one.
PASSED, FAILED = 0, 1
# A test of an endless loop is stopped; what a test takes alone was seconds.
TEST_SECONDS, BUILD_SECONDS = 600.0, 3600.0


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `status` is None if it took too long."""

    status: int | None
    said: str

    @property
    def words(self) -> str:
        return self.said.strip()[-3000:]


class Laboratory:
    """`folder` gets checkout/, its cache and its native tests, and keeps them for the next run."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self._site, self._cache, self._native = folder / "site", folder / "cache", folder / "native"
        self._compiled = False  # the library, by this run

    def copy(self) -> str:
        """Make the checkout what this one is, touching only what differs. Returns a hash of all of it."""
        listed = subprocess.run(
            ["git", "-C", str(REPO), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, check=True,
        ).stdout  # fmt: skip
        names = [name for name in listed.decode().split("\0") if name and (REPO / name).is_file()]
        digest = hashlib.sha256()
        for name in sorted(names):
            data, copy = (REPO / name).read_bytes(), self.checkout / name
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
            if not (copy.is_file() and copy.read_bytes() == data):
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(data)
                shutil.copymode(REPO / name, copy)
        for file in [file for file in self.checkout.rglob("*") if file.is_file() and "__pycache__" not in file.parts]:
            if file.relative_to(self.checkout).as_posix() not in set(names):
                file.unlink()
        self._site.mkdir(parents=True, exist_ok=True)
        link_package(self._site, self.checkout)
        return digest.hexdigest()

    def prepare_library(self) -> None:
        """Build the native library, each file by itself: a mutant compiles one. Raises MutantError."""
        words = ["-m", "dflash_local.cli", "build", "--backend", "cpu", "--no-install", "--", "-DDFLASH_UNITY=OFF"]
        self._must([sys.executable, *words], BUILD_SECONDS)
        # pip's own cmake and ninja are gone with the folder that they ran in.
        again = ["-S", str(self._work / "tree"), "-B", str(self._work / "build")]
        self._must(["cmake", *again, f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}"], BUILD_SECONDS)
        self._compiled = True
        # What a run that was killed left of a mutant goes.
        for copy in (self._work / "ggml_ops").rglob("*"):
            source = self.checkout / "ggml_ops" / copy.relative_to(self._work / "ggml_ops")
            if source.is_file() and source.read_bytes() != copy.read_bytes():
                copy.write_bytes(source.read_bytes())

    def prepare_native(self) -> None:
        """Configure the native tests. Raises MutantError."""
        options = [f"-DLLAMA_SOURCE={llama_source()}", f"-DDFLASH_LIBRARIES={native.library_path().parent}"]
        options += [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache') or ''}"]
        source = self.checkout / "ggml_ops" / "tests"
        self._must(["cmake", "-S", str(source), "-B", str(self._native), "-G", "Ninja", *options], BUILD_SECONDS)

    def verdict(self, mutant: Mutant) -> str:
        """The test that noticed the mutant, "" if it survived. Raises MutantError."""
        roots = [self.checkout, *([self._work / "ggml_ops"] if mutant.uses_library else [])]
        with mutant.within(*roots):
            return next((test for test in mutant.tests if self.notices(test)), "")

    def notices(self, test: str) -> bool:
        """Whether a test fails, crashes or takes too long. Raises MutantError."""
        if test.startswith(NATIVE):
            name = test.removeprefix(NATIVE)
            self._must(["cmake", "--build", str(self._native), "--target", f"test_{name}"], BUILD_SECONDS)
            command = ["ctest", "--test-dir", str(self._native), "--no-tests=error", "--output-on-failure"]
            return self._run([*command, "--tests-regex", f"^{name}$"], TEST_SECONDS).status != PASSED
        if self._compiled:  # after a mutant of the library, or with one
            self._must(["cmake", "--build", str(self._work / "build"), "--target", "dflash"], BUILD_SECONDS)
        options = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
        outcome = self._run([sys.executable, "-m", "pytest", *options, *test.split()], TEST_SECONDS)
        if outcome.status not in (PASSED, FAILED, None) and outcome.status > 0:
            raise MutantError(f"{test} gave no verdict (status {outcome.status}): {outcome.words}")
        return outcome.status != PASSED

    @cached_property
    def _work(self) -> Path:
        """Where the library is compiled: builder.py's folder for this machine."""
        return self._cache / "work" / "cpu"

    @cached_property
    def _library(self) -> Path:
        """Among the others that it needs, as where it is installed."""
        library = self._work / "build" / "bin" / "libdflash.so"
        if not library.is_symlink():
            library.symlink_to(Path("..") / library.name)
        return library

    @property
    def _environment(self) -> dict[str, str]:
        """The copy's package before the installed one, and the library that was compiled last."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DFLASH_", "PYTEST_CURRENT", "PYTEST_XDIST"))
        }
        return {
            **environment,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(self._site),
            "PYTHONDONTWRITEBYTECODE": "1",  # a mutant may have its file's size and time
            "DFLASH_CACHE": str(self._cache),
            "CCACHE_BASEDIR": str(self.checkout.parent),
            "CCACHE_NOHASHDIR": "1",
            **({"DFLASH_LIBRARY": str(self._library)} if self._compiled else {}),
        }

    def _must(self, command: Sequence[str], seconds: float) -> None:
        outcome = self._run(command, seconds)
        if outcome.status != 0:
            raise MutantError(f"{' '.join(command)} ended with {outcome.status}: {outcome.words}")

    def _run(self, command: Sequence[str], seconds: float) -> Outcome:
        """In the copy; a command that takes too long ends with all that it started."""
        process = subprocess.Popen(
            command, cwd=self.checkout, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=seconds)
            return Outcome(process.returncode, said)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return Outcome(None, said)
