"""Files fetched over HTTP, from allowed hosts at public addresses only.

A name is resolved once, and the connection goes to the address that was checked: a name that changes its address in
between leads nowhere else. Proxies of the environment are not used, since only they would know the address.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from dflash_local.errors import ServerError
from dflash_local.media.media_hosts import MediaHosts
from dflash_local.media.media_limits import MAX_BYTES
from dflash_local.media.public_address import is_public
from dflash_local.tls_context import tls_context
from dflash_local.words import MIB

TIMEOUT = 10.0  # seconds for all of it, redirects included
MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = [(b"User-Agent", b"dflash-local"), (b"Accept", b"image/*, audio/*"), (b"Accept-Encoding", b"identity")]

# Host and port -> the addresses that a connection may go to.
Resolver = Callable[[str, int], list[str]]


class RemoteFileError(ValueError):
    """A file may not be fetched, or could not be."""


def addresses_of(host: str, port: int) -> list[str]:
    """All addresses of a host name, by the system's resolver. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class RemoteFiles:
    """Fetches files.

    Attributes:
        hosts: those that are allowed.
        resolve, is_allowed: how names become addresses, and which of these may be connected to; others in tests alone.
    """

    hosts: MediaHosts
    resolve: Resolver = addresses_of
    is_allowed: Callable[[str], bool] = is_public
    timeout: float = TIMEOUT

    def read(self, url: str) -> bytes:
        """The file at a URL; blocks for `timeout` seconds at most, and as long as the resolver takes.

        Raises:
            RemoteFileError: the host is not allowed, or at an address that is not public; too many redirects; too slow,
                too large, or another answer than 200.
        """
        deadline = time.monotonic() + self.timeout
        for _ in range(MAX_REDIRECTS + 1):
            found = self._get(self._checked(url), deadline)
            if isinstance(found, bytes):
                return found
            url = found
        raise RemoteFileError(f"was redirected more than {MAX_REDIRECTS} times")

    def _checked(self, url: str) -> httpx.URL:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError, UnicodeError):
            raise RemoteFileError("is no valid URL") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise RemoteFileError("must be a URL of http or https")
        if parsed.userinfo:
            raise RemoteFileError("must be a URL without a user's name")
        if not self.hosts.allow(parsed.scheme, parsed.raw_host.decode("ascii"), _port(parsed)):
            raise RemoteFileError(f"is at {parsed.netloc.decode('ascii', 'replace'):.80}, which is not allowed here")
        return parsed

    def _get(self, url: httpx.URL, deadline: float) -> bytes | str:
        """The file, or the URL of a redirect."""
        backend = _CheckedBackend(self, deadline)
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        headers = [(b"Host", url.netloc), *_HEADERS]
        try:
            tls = tls_context() if url.scheme == "https" else None
            with (
                httpcore.ConnectionPool(network_backend=backend, ssl_context=tls) as pool,
                pool.stream("GET", target, headers=headers) as response,
            ):
                if response.status in _REDIRECTS:
                    return self._next(url, response)
                return b"".join(_content(response))
        except ServerError:  # without its words, which have a path of this machine
            raise RemoteFileError("could not be fetched: SSL_CERT_FILE names no authorities") from None
        except (httpcore.TimeoutException, TimeoutError):
            raise RemoteFileError(f"did not come within {self.timeout:g} s") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, OSError) as error:
            raise RemoteFileError(f"could not be fetched: {str(error) or type(error).__name__:.120}") from None

    @staticmethod
    def _next(url: httpx.URL, response: httpcore.Response) -> str:
        try:
            target = url.join(_header(response, b"location").decode("ascii"))
        except (httpx.InvalidURL, ValueError):
            raise RemoteFileError("was redirected to no valid URL") from None
        if url.scheme == "https" and target.scheme != "https":
            raise RemoteFileError("was redirected from https to an open connection")
        return str(target)


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects to addresses that were checked, and to no other."""

    def __init__(self, files: RemoteFiles, deadline: float) -> None:
        self._files, self._deadline = files, deadline
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception | None = None
        addresses = self._addresses(host, port)
        for n_tried, address in enumerate(addresses):
            # Each has its share of the time that is left: a network without IPv6 may swallow what goes to the first.
            share = _left(self._deadline) / (len(addresses) - n_tried)
            try:
                stream = self._backend.connect_tcp(address, port, share, local_address, socket_options)
                return _TimedStream(stream, self._deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError("the host has no address")

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = self._files.resolve(host, port)
        except (OSError, UnicodeError):
            raise RemoteFileError("is at a host that is not known") from None
        if not all(self._files.is_allowed(address) for address in found):
            raise RemoteFileError("is at a host whose address is not public")
        return found


class _TimedStream(httpcore.NetworkStream):
    """A connection whose every step must end before one deadline, however little arrives in between."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, _left(self._deadline))
        return _TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _content(response: httpcore.Response) -> Iterator[bytes]:
    if response.status != 200:
        raise RemoteFileError(f"could not be fetched: its server answered {response.status}")
    if _header(response, b"content-encoding") not in (b"", b"identity"):
        raise RemoteFileError("came compressed, which was not asked for")
    length = _header(response, b"content-length")
    too_long = RemoteFileError(f"is longer than {MAX_BYTES // MIB} MiB")
    if length.isdigit() and (len(length) > 18 or int(length) > MAX_BYTES):
        raise too_long
    n_bytes = 0
    for chunk in response.iter_stream():
        n_bytes += len(chunk)
        if n_bytes > MAX_BYTES:
            raise too_long
        yield chunk


def _header(response: httpcore.Response, name: bytes) -> bytes:
    return next((value for key, value in response.headers if key.lower() == name), b"")


def _port(url: httpx.URL) -> int:
    return url.port or {"http": 80, "https": 443}[url.scheme]


def _left(deadline: float) -> float:
    """Seconds. Raises TimeoutError if there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
