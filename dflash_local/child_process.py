"""Child processes: how they start, kept from the terminal's signals, and how they end, with patience."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# Options with which a process does not get the terminal's Ctrl-C: a session of its own, or Windows' process group.
OWN_GROUP: Mapping[str, Any] = {
    "start_new_session": True,
    "creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
}

# -m without Python 3.11's -P.
_RUN_MODULE = (
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
)


def module_command(name: str) -> tuple[str, ...]:
    """The command that runs one of our modules. Not -m alone, which looks for all modules in the current folder first:
    that may be anybody's project, with a queue.py of its own."""
    if sys.version_info >= (3, 11):
        return (sys.executable, "-P", "-m", name)
    return (sys.executable, "-c", _RUN_MODULE.format(name))


def end_process(process: subprocess.Popen[bytes], patience: float, attempts: int = 1) -> None:
    """Ask a process to end, up to `attempts` times, with `patience` seconds after each; then kill it, and wait. What
    interrupts the wait, such as a signal, kills it at once."""
    try:
        for _ in range(attempts):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                return
    finally:
        process.kill()  # nothing to an ended one
        process.wait()
