"""Child processes: kept from the terminal's signals, and ended with patience."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# Options with which a process does not get the terminal's Ctrl-C: a session of its own, or Windows' process group.
OWN_GROUP: Mapping[str, Any] = {
    "start_new_session": True,
    "creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
}


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
