"""Progress of a download or a conversion."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any


class Progress:
    """On a terminal one line, rewritten ten times a second; elsewhere a line for every tenth of the work. Called with
    the name of the work, its bytes so far and in total. Another name or total, or fewer bytes, begin a new line."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._last: tuple[int, int] | None = None  # done, total
        self._began = (0.0, 0)  # time, and bytes done then
        self._next_time = 0.0
        self._next_tenth = 1
        self._open = False

    def __call__(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._last is None or total != self._last[1] or done < self._last[0]:
            self.close()
            self._began, self._next_time = (now, done), now
            self._next_tenth = 10 * done // total + 1 if total else 11
        self._last = (done, total)
        if self._live and (now >= self._next_time or done == total):
            self._next_time = now + 0.1
            self._rewrite(self._line(name, done, total, now))
        elif not self._live and total and 10 * done >= self._next_tenth * total:
            self._next_tenth = 10 * done // total + 1
            self._stream.write(self._line(name, done, total, now) + "\n")
            self._stream.flush()
        if done == total:
            self.close()

    def close(self) -> None:
        if self._open:
            self._stream.write("\n")
            self._open = False
        self._last = None

    def _line(self, name: str, done: int, total: int, now: float) -> str:
        share = done / total if total else 1.0
        bar = f"[{'#' * int(24 * share):<24}] " if self._live else ""
        seconds = now - self._began[0]
        speed = (done - self._began[1]) / seconds if seconds > 0.5 else 0.0
        rate = f"  {speed / 1e6:.1f} MB/s, {_time_text((total - done) / speed)} left" if speed and done < total else ""
        return f"{bar}{share:4.0%} of {_size_text(total)}{rate}  {name}"

    def _rewrite(self, line: str) -> None:
        columns = shutil.get_terminal_size().columns
        self._stream.write("\r" + line[: columns - 1].ljust(columns - 1))
        self._stream.flush()
        self._open = True


def _size_text(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


def _time_text(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"
