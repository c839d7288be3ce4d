"""Retries of downloads, by one rule: after a broken connection, from a busy server and under a rate limit.

Importing this module imports no HTTP client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from dflash_local.errors import HubError
from dflash_local.retry_after import retry_after

MOST_FAILURES = 5  # of a download, without a new byte in between
LONGEST_WAIT = 60.0  # seconds that a server may demand

T = TypeVar("T")


class TemporaryFault(Exception):
    """A try may succeed later; `wait` is the server's demand in seconds, None if it has none."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Retries:
    """Retries of requests to the address `source`, in a session of huggingface_hub; `note` tells the user of each."""

    source: str
    session: Any
    note: Callable[[str], None]

    def result(
        self,
        what: str,
        action: Callable[[], T],
        most: int = MOST_FAILURES,
        progress: Callable[[], int] = lambda: 0,
    ) -> T:
        """The result of `action`, which gets `what` and is repeated after faults of the network and TemporaryFaults, at
        most `most` times without progress.

        Raises:
            HubError: it failed that often, or as `action` raises it.
        """
        failures = 0
        while True:
            before = progress()
            try:
                return action()
            except (_network_fault(self.session), TemporaryFault) as error:
                failures = 0 if progress() > before else failures + 1
                reason = str(error) or type(error).__name__
                if failures > most:
                    raise HubError(
                        f"cannot get {what} from {self.source}: {reason}",
                        hint="check the network; --offline uses what the cache has",
                        status=0,
                    ) from None
                demand = getattr(error, "wait", None)
                self.note(f"{what}: {reason}; trying again")
                time.sleep(min(2.0**failures, 8) / 2 if demand is None else demand)


def temporary_refusal(response: Any, server: str, hint: str = "try again then") -> Exception | None:
    """What to raise if an answer may be another one later: a TemporaryFault, or a HubError with `hint` if the server
    demands too long a pause. `server`: its name in a sentence."""
    status = response.status_code
    if status not in (408, 429) and status < 500:
        return None
    reason = f"{server} limits requests" if status == 429 else f"the server answered {status}"
    wait = retry_after(response.headers)
    if wait is not None and wait > LONGEST_WAIT:
        return HubError(f"{reason} and asks to wait {wait:.0f} s", hint=hint, status=status)
    return TemporaryFault(f"{reason} for {wait:.0f} s" if status == 429 and wait else reason, wait)


def _network_fault(session: Any) -> type[Exception]:
    """A session's class of network faults: httpx's, or since huggingface_hub 2 httpx2's."""
    modules = (base.__module__.partition(".")[0] for base in type(session).__mro__)
    package = next(name for name in modules if name.startswith("httpx"))
    error: type[Exception] = import_module(package).TransportError
    return error
