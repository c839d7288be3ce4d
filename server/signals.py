"""The signals that ask a process to end: from a terminal and from a supervisor."""

from __future__ import annotations

import signal

# Windows has no SIGTERM; its supervisors send SIGBREAK.
ENDING = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))
