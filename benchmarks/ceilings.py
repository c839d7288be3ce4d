"""The peak performance of this machine, measured by ceilings.cpp, which the system's compiler builds for this CPU."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dflash_local.errors import DFlashError

SOURCE = Path(__file__).with_suffix(".cpp")
MEMORY = 1 << 30  # bytes, more than any cache
ALONE = 0.85  # of the highest instructions per clock so far
WAITS, WAIT = 20, 0.1  # how often to look, seconds between


@dataclass(frozen=True)
class Ceilings:
    """GB/s by the size of a buffer that is read repeatedly; 10^9 multiply-adds per second in registers of int8, f32 and
    AMX tiles (0: none)."""

    read: dict[int, float]
    int8: float
    f32: float
    tile: float
    instruction: str  # of int8

    @staticmethod
    def middle(measured: Iterable[Ceilings]) -> Ceilings:
        """The medians of several measurements."""
        all_ = list(measured)
        sizes = sorted({size for one in all_ for size in one.read})
        read = {size: median(one.read[size] for one in all_ if size in one.read) for size in sizes}
        int8, f32, tile = (median(getattr(one, name) for one in all_) for name in ("int8", "f32", "tile"))
        return Ceilings(read, int8, f32, tile, all_[0].instruction)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "read": {str(size): round(speed, 2) for size, speed in self.read.items()}}


class Meter:
    """The measuring program, compiled into `folder`.

    Raises:
        DFlashError: there is no compiler, or it refuses the program.
    """

    def __init__(self, folder: Path) -> None:
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if not compiler:
            raise DFlashError(
                "no C++ compiler found to measure the machine's ceilings with",
                hint="install g++ or clang++, or set CXX",
            )
        self._program = folder / "ceilings"
        cpu = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
        command = [*compiler.split(), "-std=c++17", "-O3", cpu, "-pthread", str(SOURCE), "-o", str(self._program)]
        process = subprocess.run(command, capture_output=True, text=True)
        if process.returncode != 0:
            raise DFlashError(f"{SOURCE.name} does not compile: {process.stderr.strip()[:500]}")

    def measure(self, threads: int, sizes: Iterable[int] = (), quick: bool = False) -> Ceilings:
        """`sizes`: bytes of buffers to read, besides MEMORY. Takes a few seconds; if `quick` half a second, without
        MEMORY."""
        times, wanted = ("2", {*sizes}) if quick else ("5", {MEMORY, *sizes})
        figures = json.loads(self._run([str(self._program), str(threads), times, *map(str, sorted(wanted))]))
        read = {int(size): speed for size, speed in figures["read"].items()}
        return Ceilings(read, figures["int8"], figures["f32"], figures["tile"], figures["instruction"])

    def instructions_per_clock(self, threads: int) -> float:
        """Instructions per clock of a core, of the slowest thread. Takes a few milliseconds."""
        return float(self._run([str(self._program), str(threads), "0"]))

    @staticmethod
    def _run(argv: list[str]) -> str:
        process = subprocess.run(argv, capture_output=True, text=True)
        if process.returncode != 0:
            raise DFlashError(
                f"measuring the machine's ceilings failed: {process.stderr.strip() or f'status {process.returncode}'}"
            )
        return process.stdout


class Cores:
    """Are the cores ours alone? On a shared machine another guest may use a core's other hardware thread for seconds.
    The core then issues about half as many instructions per clock, and everything but dot products in registers takes
    up to twice as long.
    """

    def __init__(self, look: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> None:
        self._look, self._sleep = look, sleep
        self._best = max(look() for _ in range(20))

    def alone(self) -> bool:
        now = self._look()
        self._best = max(self._best, now)
        return now >= ALONE * self._best

    def wait(self) -> None:
        """Wait until they are ours alone, at most a few seconds."""
        for _ in range(WAITS):
            if self.alone():
                return
            self._sleep(WAIT)
