"""LaunchedServer: a `serve` that runs as long as the program that uses it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from dflash_local.child_process import OWN_GROUP, end_process, module_command
from dflash_local.cli.launch.server_facts import ServerFacts, client_at, watched_facts
from dflash_local.cli.terminal.notes import aside
from dflash_local.cli.terminal.progress import StatusLine
from dflash_local.disk import temporary_space
from dflash_local.errors import DFlashError

_PATIENCE = 10.0  # seconds for each of two requests to end


class LaunchedServer:
    """Starts `serve` with these flags; a context manager, which ends it. The log is a file, because the program has the
    terminal; it is removed unless something failed whose reasons it may have."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._command = [*module_command("dflash_local.cli"), "serve", *flags]

    def __enter__(self) -> LaunchedServer:
        with temporary_space():
            file = tempfile.NamedTemporaryFile(prefix="dflash-serve-", suffix=".log", delete=False)
        with file as log:
            self.log = Path(log.name)
            # Ctrl-C is for the program.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **OWN_GROUP
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._process.poll() is not None:
            if kind is None:
                aside(f"the server ended before the program did; its log is {self.log}")
            return
        end_process(self._process, _PATIENCE, attempts=2)  # the second one hurries it
        if kind is not None and issubclass(kind, Exception):  # not a signal, by which the user ends it
            aside(f"the server's log is {self.log}")
        else:
            self.log.unlink(missing_ok=True)

    def wait(self, url: str, key: str | None) -> ServerFacts:
        """Wait until the model is loaded, and show what happens meanwhile.

        Raises:
            DFlashError: the server ended, and the message is its own; another program answers in its place; or, as
                ServerError, it cannot be talked to.
        """
        looks, status = watched_facts(client_at(url, key)), StatusLine()
        try:
            while not isinstance(found := next(looks), ServerFacts):
                if self._process.poll() is not None:
                    raise self._failure()
                if status.is_live:
                    status.show(self._last_line() if found is None else f"loading: {found.progress:.0%}")
            return found
        finally:
            status.close()

    def _last_line(self) -> str:
        lines = self.log.read_bytes()[-4096:].decode("utf-8", "replace").split("\n")
        return next((line.rpartition("\r")[2] for line in reversed(lines) if line.strip()), "starting")

    def _failure(self) -> DFlashError:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^error: (.*)(?:\n  fix: (.*))?", text, re.MULTILINE)
        if found is None:
            return DFlashError(f"the server ended with status {self._process.returncode}", hint=f"read {self.log}")
        self.log.unlink()
        return DFlashError(found[1], hint=found[2])
