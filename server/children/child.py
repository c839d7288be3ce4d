"""Child: a process that the server started."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dflash_local.child_process import OWN_GROUP
from dflash_local.server.children import frames

log = logging.getLogger(__name__)

# Seconds that a child has to exit by itself.
PATIENCE = 5.0
# Characters of a line that is passed on; longer ones are cut.
LONGEST_LINE = 4096

Listener = Callable[[str], None]


class Child:
    """A process that talks in frames over its standard input and output; for one event loop.

    It must exit when its input ends (children/parent.py), so that it does not outlive a server that was killed.
    """

    def __init__(self, process: asyncio.subprocess.Process, on_line: Listener | None) -> None:
        self._process = process
        self._reading = None if on_line is None else asyncio.create_task(self._read_log(on_line))

    @classmethod
    async def start(
        cls, command: Sequence[str], *, env: Mapping[str, str] | None = None, on_line: Listener | None = None
    ) -> Child:
        """Start it. With `on_line`, which is called with each line of its log, the terminal's Ctrl-C does not reach it;
        without, it shares the log and the terminal.

        Raises:
            OSError: it cannot be started.
        """
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=None if on_line is None else pipe,
            env=None if env is None else dict(env),
            **({} if on_line is None else OWN_GROUP),
        )
        return cls(process, on_line)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def receive(self) -> frames.Frame | None:
        """Its next frame; None once it is gone."""
        assert self._process.stdout is not None
        return await frames.receive(self._process.stdout)

    def send(self, message: dict[str, Any]) -> None:
        """Send it a message; does nothing if it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(frames.pack(message))

    async def drain(self) -> None:
        """Wait until it has read most of what was sent to it."""
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # receive() tells that it is gone
            await self._process.stdin.drain()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> int:
        """Wait for its end and the end of its log. Returns its exit status; negative: the signal that killed it."""
        status = await self._process.wait()
        if self._reading is not None:
            # A process that it started may still hold the pipe.
            await asyncio.wait([self._reading], timeout=1.0)
            self._reading.cancel()
        return status

    async def end(self) -> int:
        """Close its input, kill it after PATIENCE seconds, and return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), PATIENCE)
        except asyncio.TimeoutError:
            self.kill()
        return await self.wait()

    async def _read_log(self, on_line: Listener) -> None:
        stream = self._process.stderr
        assert stream is not None
        rest = b""
        while data := await stream.read(65536):
            *lines, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                _tell(on_line, line)
        _tell(on_line, rest)


def _tell(on_line: Listener, line: bytes) -> None:
    text = line.decode("utf-8", "replace").rstrip()[:LONGEST_LINE]
    if text:
        on_line(text)


def reason(status: int) -> str:
    """An exit status in words: `status 1`, `SIGKILL`."""
    if status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
    return f"status {status}"
