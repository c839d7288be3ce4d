"""TrainingChild: a training run as a process that the server stops whenever somebody asks it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dflash_local.child_process import end_process

PATIENCE = 5.0  # seconds to keep what is done, at the server's end
_LAST_BYTES = 8192  # of a log, in which its last words are looked for


class TrainingChild:
    """A process that writes into `log` and should end when its input does (background.py). `seconds` counts the time
    in which it was not stopped. All calls must come from one thread at a time.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
            )
        self._begun: float | None = time.monotonic()  # None: it is stopped
        self._seconds = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_paused(self) -> bool:
        return self._begun is None

    @property
    def seconds(self) -> float:
        return self._seconds + (time.monotonic() - self._begun if self._begun is not None else 0.0)

    @property
    def status(self) -> int | None:
        """Its exit status; negative: the signal that killed it; None: it runs, or is stopped."""
        return self._process.poll()

    def pause(self) -> None:
        """Stop it until `resume`."""
        if self._begun is not None:
            self._process.send_signal(signal.SIGSTOP)
            self._seconds, self._begun = self.seconds, None

    def resume(self) -> None:
        if self._begun is None:
            self._process.send_signal(signal.SIGCONT)
            self._begun = time.monotonic()

    def end(self) -> None:
        """End it, which keeps what is done; kill it if that takes long."""
        self.resume()
        end_process(self._process, PATIENCE)
        self.close()

    def close(self) -> None:
        """Forget a process that has ended."""
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()
        self._seconds, self._begun = self.seconds, None

    def last_words(self) -> str:
        """The line of its log that says why it ended."""
        with self._log.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _LAST_BYTES, 0))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it said nothing"])[-1].strip()
