"""A terminal for tests: a pty, and an emulator that shows what a user would see."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import struct
import termios
import time
from types import TracebackType
from typing import Any

import pyte

END = b"\0the end\0"  # of what was written until then; no program writes it


class Terminal:
    """A context manager: `slave` is what programs write to, `screen` what is seen after `look()` or `settle()`."""

    def __init__(self, columns: int = 80, lines: int = 60) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = pyte.Screen(columns, lines)
        self.screen.set_mode(pyte.modes.LNM)
        self.bytes = b""
        self._stream = pyte.ByteStream(self.screen)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.master)
        os.close(self.slave)

    def file(self) -> io.TextIOWrapper:
        """Standard output or error of a program in this process."""
        return os.fdopen(os.dup(self.slave), "w", encoding="utf-8", newline="\n")

    def look(self, seconds: float = 0.0) -> None:
        """Show what has been written."""
        while select.select([self.master], [], [], seconds)[0]:
            self._show(os.read(self.master, 65536))

    def settle(self) -> None:
        """Show all that this process has written, however slow the terminal is: an end mark comes behind it."""
        self.look()  # makes room for the mark
        os.write(self.slave, END)
        data = b""
        while not data.endswith(END):
            data += os.read(self.master, 65536)
        self._show(data.removesuffix(END))

    def until(self, mark: str, timeout: float = 60.0) -> None:
        """Look until `mark` is on the screen."""
        deadline = time.monotonic() + timeout
        while mark not in self.text():
            assert time.monotonic() < deadline, f"{mark!r} did not come: {self.text()}"
            self.look(0.05)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def text(self) -> str:
        """All lines, without the spaces at their ends."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    def cells(self) -> list[Any]:
        """What is in each place, with its colour and style, row by row."""
        return [self.screen.buffer[y][x] for y in range(self.screen.lines) for x in range(self.screen.columns)]

    def struck(self) -> str:
        """What is struck out."""
        return "".join(cell.data for cell in self.cells() if cell.strikethrough)

    def _show(self, data: bytes) -> None:
        self.bytes += data
        self._stream.feed(data)
