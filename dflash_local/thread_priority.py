"""How urgent what a thread does is, as `ggml_ops/base/thread_priority.h` has it for libdflash's threads."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

NICE = 5  # a third of the time of a thread that wants the same core


def lower_thread_priority() -> None:
    """Let other threads go first wherever the calling one wants the same core: on Linux, if it may."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox refuses
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # 0: this thread
            os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
