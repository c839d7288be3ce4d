"""Retries of downloads, by one rule: after a broken connection, from a busy server and under a rate limit. Every other
fault of a request is a HubError at once.

Importing this module imports no HTTP client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TypeVar

from dflash_local.errors import HubError
from dflash_local.hub.http_response import TemporaryFault
from dflash_local.hub.http_session import Session, Unreachable, reason_of
from dflash_local.tls_context import TLS_HINT, tls_error

MOST_FAILURES = 5  # of a download, without a new byte in between
_NO_NETWORK = "check the network; --offline uses what the cache has"
_NO_FILE = "a proxy, or the login page of this network, may answer there; --offline uses what the cache has"
_NO_ADDRESS = "check the address, which may come from HF_ENDPOINT or MODEL_ENDPOINT"
_NO_HEADER = "check the token, the address, and variables whose names begin with HF_, for line feeds and such"

T = TypeVar("T")


@dataclass(frozen=True)
class Retries:
    """Retries of requests to the address `source`, in `session`; `note` tells the user of each."""

    source: str
    session: Session
    note: Callable[[str], None]

    def result(
        self,
        what: str,
        action: Callable[[], T],
        most: int = MOST_FAILURES,
        most_timeouts: int = MOST_FAILURES,
        progress: Callable[[], int] = lambda: 0,
    ) -> T:
        """The result of `action`, which gets `what` and is repeated after faults of the network and TemporaryFaults, at
        most `most` times without progress, and where no connection comes about in time `most_timeouts` times.

        Raises:
            HubError: it failed that often, or as `action` raises it; Unreachable if the server cannot be asked at all.
        """
        http = _client_package(self.session)
        failures = 0
        while True:
            before = progress()
            try:
                return action()
            except (http.InvalidURL, http.UnsupportedProtocol, UnicodeError) as error:  # the last: a host's name
                # httpx's words about a URL may have parts of a password.
                reason = "it is no URL of a server" if isinstance(error, http.InvalidURL) else reason_of(error)
                raise self._unreachable(what, reason, _NO_ADDRESS) from None
            except http.LocalProtocolError:  # its words have the header's value, which may be a token
                message = f"cannot get {what} from {self.source}: HTTP allows no such request"
                raise HubError(message, hint=_NO_HEADER) from None
            except (http.TransportError, TemporaryFault) as error:
                if isinstance(error, http.ConnectError) and (tls := _lasting_tls_error(error)):
                    raise self._unreachable(what, f"no TLS connection: {tls}", TLS_HINT) from None
                failures = 0 if progress() > before else failures + 1
                if failures > (min(most, most_timeouts) if isinstance(error, http.ConnectTimeout) else most):
                    raise self._given_up(what, error, None if isinstance(error, http.ProxyError) else 0) from None
                demand = getattr(error, "wait", None) or 0.0  # 0 also of a date in the past
                self.note(f"{what}: {reason_of(error)}; trying again")
                time.sleep(max(min(2.0**failures, 8) / 2, demand))
            except http.RequestError as error:  # redirects without end, or what cannot be decoded
                message = f"cannot get {what} from {self.source}: {reason_of(error)}"
                raise HubError(message, hint=_NO_FILE, cache_may_serve=True) from None

    def _given_up(self, what: str, error: Exception, status: int | None) -> HubError:
        if isinstance(error, TemporaryFault):
            message = f"cannot get {what} from {self.source}: {reason_of(error)}"
            return HubError(message, hint=_NO_NETWORK, status=error.status, cache_may_serve=True)
        return self._unreachable(what, reason_of(error), _NO_NETWORK, status)

    def _unreachable(self, what: str, reason: str, hint: str, status: int | None = None) -> Unreachable:
        return Unreachable(f"{self.source}: {reason}", what=what, hint=hint, status=status)


def _client_package(session: Session) -> ModuleType:
    """The package with the session's exceptions: httpx or httpx2."""
    packages = (base.__module__.partition(".")[0] for base in type(session).__mro__)
    return import_module(next(name for name in packages if name in ("httpx", "httpx2")))


def _lasting_tls_error(error: Exception) -> Exception | None:
    """The TLS error of a connection that failed, if it will be there again: a certificate, or a server without TLS."""
    import ssl

    found = tls_error(error)
    return None if isinstance(found, ssl.SSLEOFError) else found  # a server that broke off
