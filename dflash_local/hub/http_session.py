"""The HTTP session of huggingface_hub, with its proxies, its certificates and the user's own client factory.

It trusts the authorities of SSL_CERT_FILE or SSL_CERT_DIR; without them, those that httpx brings, or with
huggingface_hub 2 the system's. `tls_context()` would have the system's always, but a session gets it by
set_client_factory() alone, which drops a factory of the user's, and nothing public says whether there is one.

Importing this module imports no HTTP client.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from dflash_local.errors import HubError
from dflash_local.hub.http_response import Response

TIMEOUT = 30.0  # seconds without a byte
# Seconds until there is a connection, for each address of a host: behind a firewall that drops packets, a start with a
# cached model waits for all of them.
CONNECT_TIMEOUT = 5.0
_NO_PROXY = "correct HTTP_PROXY, HTTPS_PROXY or ALL_PROXY; NO_PROXY=* passes them all by"
_NO_AUTHORITIES = "correct SSL_CERT_FILE or SSL_CERT_DIR, which name the authorities to trust"
# By names, which httpx and httpx2 share: their own words are "timed out", or none. The seconds follow.
_TIMEOUTS = {
    "ConnectTimeout": "no connection within",
    "ReadTimeout": "it was silent for",
    "WriteTimeout": "it took nothing for",
    "PoolTimeout": "no connection was free for",
}

Timeouts = tuple[float, float, float, float]  # seconds to connect, read, write, and wait for a free connection


class Session(Protocol):
    """What is used of a client of httpx, or since huggingface_hub 2 of httpx2."""

    def stream(
        self, method: str, url: str, *, headers: Mapping[str, str], timeout: Timeouts, follow_redirects: bool
    ) -> AbstractContextManager[Response]: ...


class Unreachable(HubError):
    """A server can be asked for nothing, because of the connection, the proxy or the address. `fault`: the message
    without the name of `what` was asked for ("" if it has none)."""

    def __init__(self, fault: str, *, what: str = "", hint: str | None = None, status: int | None = None) -> None:
        message = f"cannot get {what} from {fault}" if what else fault
        super().__init__(message, hint=hint, status=status, cache_may_serve=True)
        self.fault, self.what = fault, what

    def about(self, what: str) -> Unreachable:
        """The same of something else."""
        return Unreachable(self.fault, what=what if self.what else "", hint=self.hint, status=self.status)


def open_session() -> Session:
    """The session. Raises Unreachable: none can be made, as with a proxy that cannot be used."""
    from huggingface_hub import get_session

    try:
        return get_session()
    except OSError as error:  # of the authorities' files
        raise Unreachable(f"cannot go online: {reason_of(error)}", hint=_NO_AUTHORITIES) from None
    except Exception as error:  # ImportError, or what a client factory of the user raises
        is_of_url = isinstance(error, ValueError) or type(error).__name__ == "InvalidURL"
        # Not httpx's words about a URL, which may have parts of a password.
        reason = "the URL of a proxy cannot be used" if is_of_url else reason_of(error)
        raise Unreachable(f"cannot go online: {reason}", hint=_NO_PROXY) from None


def get(session: Session, url: str, headers: Mapping[str, str]) -> AbstractContextManager[Response]:
    """The streamed response to a GET, after redirects, of any status."""
    timeout = (CONNECT_TIMEOUT, TIMEOUT, TIMEOUT, TIMEOUT)
    return session.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True)


def reason_of(error: Exception) -> str:
    """What a fault says, in a sentence about the server."""
    name = type(error).__name__
    if words := _TIMEOUTS.get(name):
        seconds = CONNECT_TIMEOUT if name == "ConnectTimeout" else TIMEOUT
        return f"{words} {seconds:g} s"
    return str(error) or name
