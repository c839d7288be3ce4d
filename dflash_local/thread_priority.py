"""Which thread goes first: how urgent what one does is, as `ggml_ops/base/thread_priority.h` has it for libdflash's
threads, and how soon one that waits for the GIL gets it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

NICE = 5  # a third of the time of a thread that wants the same core
SWITCH_INTERVAL = 0.0005  # seconds


def lower_thread_priority() -> None:
    """Let other threads go first wherever the calling one wants the same core: on Linux, if it may."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox refuses
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # 0: this thread
            os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def hand_over_gil_soon() -> None:
    """Let a thread that waits for the GIL have it after half a millisecond. Python's default is 5, and the engine's
    thread needs it every few milliseconds, after each step; while it loads, at each message of llama.cpp."""
    sys.setswitchinterval(SWITCH_INTERVAL)
