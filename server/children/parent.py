"""Parent: the server as its child sees it, at the other ends of standard input and output."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dflash_local.server.children import frames


class Parent:
    """The process that started this one. Any thread may `say` something; only one may read.

    Once this exists, everything that is printed goes to the log. Input is read without Python's buffers: a thread that
    waits in one of them would abort the interpreter at its exit.
    """

    def __init__(self) -> None:
        self._output = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._saying = threading.Lock()
        self.on_stop: Callable[[], None] | None = None  # called by `obey`
        self.on_hurry: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] = lambda: None  # called before the process ends, if the parent has

    def say(self, message: dict[str, Any], data: bytes = b"") -> None:
        """Send it a message; does nothing if it is gone."""
        with self._saying, suppress(OSError):
            self._output.write(frames.pack(message, data))
            self._output.flush()

    def read(self) -> frames.Frame | None:
        """Its next frame; None once it is gone."""
        return frames.read(0)

    def obey(self) -> None:
        """In a thread: do as the parent says, {"do": "stop"} or {"do": "hurry"}, and exit at once when it is gone."""

        def run() -> None:
            while frame := self.read():
                end = self.on_stop if frame[0]["do"] == "stop" else self.on_hurry
                if end is None:  # nothing is served yet
                    os._exit(1)
                end()
            self.on_gone()
            os._exit(1)

        threading.Thread(target=run, name="parent", daemon=True).start()
