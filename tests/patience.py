"""How long a test waits for what must come: a machine that does a lot else may take a hundred times as long as an idle
one. A test that holds waits for none of it."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 120.0  # seconds


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Poll until `condition` holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.005)
