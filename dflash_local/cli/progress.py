"""How far a conversion is, on the terminal."""

from __future__ import annotations

import shutil
import time
from typing import Any


class Progress:
    """One line on a terminal, rewritten ten times a second; elsewhere a line for every tenth of the work."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._next_time = 0.0
        self._next_tenth = 1

    def __call__(self, name: str, done: int, total: int) -> None:
        share = done / total
        if self._live and (time.monotonic() >= self._next_time or done == total):
            self._next_time = time.monotonic() + 0.1
            columns = shutil.get_terminal_size().columns
            bar = "#" * int(30 * share)
            line = f"[{bar:<30}] {share:4.0%} of {total / 1e6:.0f} MB  {name}"
            self._stream.write("\r" + line[: columns - 1].ljust(columns - 1))
            self._stream.flush()
        elif not self._live and share * 10 >= self._next_tenth:
            self._next_tenth = int(share * 10) + 1
            self._stream.write(f"{share:4.0%} of {total / 1e6:.0f} MB  {name}\n")
            self._stream.flush()

    def close(self) -> None:
        if self._live and self._next_time:
            self._stream.write("\n")
