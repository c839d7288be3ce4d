"""The progress lines of a build, and its log file."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

_PROGRESS = re.compile(r"^\s*\[\s*(\d+)/(\d+)\]")
_ERROR = re.compile(
    r"\b(error|fatal error|ERROR)\b:?|No space left on device|CMake Error|undefined reference", re.IGNORECASE
)
# pip's last lines say only that something failed.
_NOISE = re.compile(
    r"subprocess-exited-with-error|Failed (building|to build)|This error originates"
    r"|exit code: \d|did not run successfully|finished with status"
)


class BuildLog:
    """A log file plus short progress lines on `out` (default: stdout). Use as a context manager."""

    def __init__(self, path: Path, out: TextIO | None = None) -> None:
        self.path = path
        self._out = out or sys.stdout
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._live = self._out.isatty()
        self._started = time.monotonic()

    def __enter__(self) -> BuildLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)
        self._file.write(f"== {text}\n")
        self._file.flush()

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> tuple[int, list[str]]:
        """Run a command, log its output, show `[i/n]` lines as progress. Returns exit status and output lines."""
        self._file.write(f"$ {' '.join(command)}\n")
        lines: list[str] = []
        last_percent = most = 0
        with subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self._file.write(line)
                self._file.flush()
                lines.append(line.rstrip())
                # Skip nested builds, such as that of a source generator, with their own small counts.
                if (match := _PROGRESS.match(line)) and int(match[2]) >= most:
                    most = int(match[2])
                    last_percent = self._progress(int(match[1]), most, last_percent)
        if last_percent and self._live:
            print(file=self._out, flush=True)
        return process.returncode, lines

    def _progress(self, done: int, total: int, last_percent: int) -> int:
        percent = 100 * done // max(total, 1)
        if self._live:
            print(f"\r  [{done}/{total}] {percent:3d} %  {self.seconds:4.0f} s", end="", file=self._out, flush=True)
            return percent or 1
        if percent // 20 > last_percent // 20:
            print(f"  {percent} % of {total} files, {self.seconds:.0f} s", file=self._out, flush=True)
        return max(last_percent, percent)

    @staticmethod
    def excerpt(lines: Sequence[str], count: int = 8) -> str:
        """The first lines that name an error (the first is usually the cause), else the last ones."""
        plain = [line.strip()[:300] for line in lines if line.strip() and not _PROGRESS.match(line)]
        errors = [at for at, line in enumerate(plain) if _ERROR.search(line) and not _NOISE.search(line)]
        # CMake puts the message on the line below "CMake Error at ...".
        numbers = sorted(
            {at + extra for at in errors[:count] for extra in range(2 if plain[at].startswith("CMake Error") else 1)}
        )
        return "\n".join("  " + line for line in ([plain[at] for at in numbers if at < len(plain)] or plain[-count:]))
