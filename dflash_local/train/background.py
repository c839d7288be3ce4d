"""A training run in the background of a server: it gives way to everything else, and does not outlive that server."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress

_PATIENCE = 5.0  # seconds to keep what is done, once the server is gone
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def go_to_background() -> None:
    """Run from now on in a process group of its own, whenever nobody else wants the core, and until standard input
    ends. To be called before there are other threads, which inherit the priority."""
    with suppress(OSError):  # it is a group's leader already
        os.setpgid(0, 0)
    _continue_without_server()
    with suppress(OSError):  # a sandbox refuses
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    threading.Thread(target=_end_with_input, name="server", daemon=True).start()


def _continue_without_server() -> None:
    """Let the kernel continue this process if the server is killed while it has stopped it. POSIX has that for groups
    of the server's own session, unless they are only about to stop, which an unimportant one does late."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _end_with_input() -> None:
    """Wait for the end of standard input, which the server holds open; then end this process as Ctrl-C would."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE)
    os._exit(1)
