"""Retries of downloads, by one rule: after a broken connection, from a busy server and under a rate limit. Every other
fault of a request is a HubError at once.

Importing this module imports no HTTP client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from dflash_local.errors import HubError
from dflash_local.retry_after import retry_after

MOST_FAILURES = 5  # of a download, without a new byte in between
LONGEST_WAIT = 60.0  # seconds that a server may demand
_NO_NETWORK = "check the network; --offline uses what the cache has"
_NO_FILE = "a proxy, or the login page of this network, may answer there; --offline uses what the cache has"
_NO_ADDRESS = "check the address, which may come from HF_ENDPOINT or MODEL_ENDPOINT"
_NO_PROXY = "correct HTTP_PROXY, HTTPS_PROXY or ALL_PROXY; NO_PROXY=* passes them all by"

T = TypeVar("T")


class TemporaryFault(Exception):
    """A try may succeed later; `wait` is the server's demand in seconds, None if it has none, and `status` its refusal,
    0 if the connection broke."""

    def __init__(self, reason: str, wait: float | None = None, status: int = 0) -> None:
        super().__init__(reason)
        self.wait, self.status = wait, status


class Unreachable(HubError):
    """A server can be asked for nothing, because of the connection, the proxy or the address. `fault` says so without
    `what` was asked for ("" if the message does not name it)."""

    def __init__(self, fault: str, *, what: str = "", hint: str | None = None, status: int | None = None) -> None:
        message = f"cannot get {what} from {fault}" if what else fault
        super().__init__(message, hint=hint, status=status, is_out_of_reach=True)
        self.fault, self.what = fault, what

    def about(self, what: str) -> Unreachable:
        """The same of something else."""
        return Unreachable(self.fault, what=what if self.what else "", hint=self.hint, status=self.status)


def open_session() -> Any:
    """The session of huggingface_hub. Raises Unreachable: none can be made, as with a proxy that cannot be used."""
    from huggingface_hub import get_session

    try:
        return get_session()
    except Exception as error:  # ImportError, ValueError, InvalidURL, or what a client factory of the user raises
        raise Unreachable(f"cannot go online: {_reason(error)}", hint=_NO_PROXY) from None


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
            HubError: it failed that often, or as `action` raises it; Unreachable if the server cannot be asked at all.
        """
        failures = 0
        faults = _Faults.of(self.session)
        while True:
            before = progress()
            try:
                return action()
            except faults.address as error:
                raise self._unreachable(what, error, _NO_ADDRESS) from None
            except (faults.connection, TemporaryFault) as error:
                failures = 0 if progress() > before else failures + 1
                if failures > most:
                    raise self._given_up(what, error, faults) from None
                demand = getattr(error, "wait", None)
                self.note(f"{what}: {_reason(error)}; trying again")
                time.sleep(min(2.0**failures, 8) / 2 if demand is None else demand)
            except faults.request as error:
                message = f"cannot get {what} from {self.source}: {_reason(error)}"
                raise HubError(message, hint=_NO_FILE, is_out_of_reach=True) from None

    def _given_up(self, what: str, error: Exception, faults: _Faults) -> HubError:
        if isinstance(error, TemporaryFault):
            message = f"cannot get {what} from {self.source}: {_reason(error)}"
            return HubError(message, hint=_NO_NETWORK, status=error.status)
        return self._unreachable(what, error, _NO_NETWORK, None if isinstance(error, faults.proxy) else 0)

    def _unreachable(self, what: str, error: Exception, hint: str, status: int | None = None) -> Unreachable:
        return Unreachable(f"{self.source}: {_reason(error)}", what=what, hint=hint, status=status)


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
    return TemporaryFault(f"{reason} for {wait:.0f} s" if status == 429 and wait else reason, wait, status)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


class _Faults(NamedTuple):
    """A session's classes of faults, httpx's, or since huggingface_hub 2 httpx2's: of the connection, of its proxy,
    of any request (endless redirects, an answer that cannot be decoded), and of an address."""

    connection: type[Exception]
    proxy: type[Exception]
    request: type[Exception]
    address: tuple[type[Exception], ...]

    @classmethod
    def of(cls, session: Any) -> _Faults:
        modules = (base.__module__.partition(".")[0] for base in type(session).__mro__)
        client = import_module(next(name for name in modules if name in ("httpx", "httpx2")))
        # UnicodeError: a host's name that no resolver takes.
        address = (client.InvalidURL, client.UnsupportedProtocol, UnicodeError)
        return cls(client.TransportError, client.ProxyError, client.RequestError, address)
