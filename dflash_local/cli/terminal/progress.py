"""Progress of long tasks: a line that is rewritten, and what it shows of a download or a conversion."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from dflash_local.words import file_size_text


class StatusLine:
    """The last line of a terminal, which is rewritten; elsewhere every line stays."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.is_live = self._stream.isatty()
        self._open = False

    def show(self, line: str) -> None:
        """Rewrite the line."""
        if not self.is_live:
            self.print(line)
            return
        columns = shutil.get_terminal_size().columns
        self._stream.write("\r" + line[: columns - 1].ljust(columns - 1))
        self._stream.flush()
        self._open = True

    def print(self, line: str) -> None:
        """Write a line that stays."""
        self.close()
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Keep the line as it is."""
        if self._open:
            self._stream.write("\n")
            self._open = False


class Progress:
    """On a terminal one line, rewritten ten times a second; elsewhere a line for every tenth of the work. Called with
    the name of the work, its bytes so far and in total. Another name or total, or fewer bytes, begin a new line. A
    context manager, which closes the line; `quiet`: shows nothing."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._line, self._quiet = StatusLine(stream), quiet
        self._last: tuple[int, int] | None = None  # done, total
        self._began = (0.0, 0)  # time, and bytes done then
        self._next_time = 0.0
        self._next_tenth = 1

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, name: str, done: int, total: int) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if self._last is None or total != self._last[1] or done < self._last[0]:
            self.close()
            self._began, self._next_time = (now, done), now
            self._next_tenth = 10 * done // total + 1 if total else 11
        self._last = (done, total)
        is_tenth = bool(total) and 10 * done >= self._next_tenth * total
        if (now >= self._next_time or done == total) if self._line.is_live else is_tenth:
            self._next_time = now + 0.1
            self._next_tenth = 10 * done // total + 1 if total else 11
            self._line.show(self._text(name, done, total, now))
        if done == total:
            self.close()

    def close(self) -> None:
        self._line.close()
        self._last = None

    def _text(self, name: str, done: int, total: int, now: float) -> str:
        share = done / total if total else 1.0
        bar = f"[{'#' * int(24 * share):<24}] " if self._line.is_live else ""
        seconds = now - self._began[0]
        speed = (done - self._began[1]) / seconds if seconds > 0.5 else 0.0
        rate = ""
        if speed and done < total:
            rate = f"  {speed / 1e6:.1f} MB/s, {duration_text((total - done) / speed)} left"
        return f"{bar}{share:4.0%} of {file_size_text(total)}{rate}  {name}"


def duration_text(seconds: float) -> str:
    """M:SS, or H:MM:SS."""
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"
