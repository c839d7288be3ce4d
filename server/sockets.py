"""Sockets: TCP and UNIX, bound before a model is downloaded, so that an address in use fails at once. They listen once
a server is there to answer."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from dflash_local.errors import DFlashError

UNIX_SUFFIX = ".sock"
BACKLOG = 2048
# The system's buffer for what a client has not read yet. Left to itself it grows to megabytes for each connection.
SEND_BUFFER = 256 * 1024


@contextmanager
def bound(hosts: Sequence[str], port: int, *, reuse_port: bool = False) -> Iterator[list[socket.socket]]:
    """Sockets at every host, which is an address, a name, or the path of a UNIX socket. With port 0 all take the port
    that is free for the first. Clients are refused, and need not wait, until `listen`. UNIX sockets are removed at the
    end.

    Raises:
        DFlashError: an address cannot be had.
    """
    with ExitStack() as stack:
        sockets = []
        n_tcp = sum(not is_unix(host) for host in hosts)
        for host in hosts:
            if is_unix(host):
                sockets.append(stack.enter_context(_bound_unix(host)))
                continue
            sock = stack.enter_context(bind(host, port, reuse_port=reuse_port, only_v6=n_tcp > 1))
            port = sock.getsockname()[1]
            sockets.append(sock)
        yield sockets


def listen(sockets: Sequence[socket.socket]) -> None:
    """Let bound sockets take connections.

    Raises:
        DFlashError: another program has taken an address meanwhile. Some systems bind several sockets to one, and give
            it to the first that listens; a UNIX socket that does not listen yet looks like one of a dead server.
    """
    for sock in sockets:
        try:
            if isinstance(sock, _UnixSocket) and not sock.has_file():
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            sock.listen(BACKLOG)
        except OSError as error:
            raise _refusal(sock.getsockname(), error) from None


def is_unix(host: str) -> bool:
    """Whether --host means a UNIX socket."""
    return host.endswith(UNIX_SUFFIX)


def bind(host: str, port: int, *, reuse_port: bool = False, only_v6: bool = False) -> socket.socket:
    """A bound TCP socket; `only_v6` keeps :: from taking the IPv4 addresses as well. Raises DFlashError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only where the protocol is named; with it, a kept connection waits 40 ms for
    # each answer.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there it would let two servers share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            _share_port(sock)
        if only_v6 and family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise _refusal((host, port), error) from None
    return sock


def _refusal(address: str | tuple[Any, ...], error: Exception) -> DFlashError:
    """Why there is no socket at an address, as the system names it: a path, or a host, a port and more."""
    if isinstance(address, str):
        return DFlashError(f"cannot listen on {address}: {error}", hint="choose another --host")
    host, port = address[:2]
    hint = _port_hint(error, port) or "choose another --port or --host"
    return DFlashError(f"cannot listen on {host}:{port}: {error}", hint=hint)


def _port_hint(error: Exception, port: int) -> str:
    """A hint for a port that another program has; "" for other errors."""
    if getattr(error, "errno", None) != errno.EADDRINUSE:
        return ""
    return f"add --port {port + 1}, or end the program that listens there" if port < 65535 else ""


def url(sock: socket.socket, scheme: str) -> str:
    """How a socket is reached."""
    if sock.family == getattr(socket, "AF_UNIX", None):
        return f"unix://{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _share_port(sock: socket.socket) -> None:
    if not hasattr(socket, "SO_REUSEPORT"):
        raise DFlashError("this system cannot share a port", hint="leave --reuse-port out")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


class _UnixSocket(socket.socket):
    """A UNIX socket that knows its file. A server that drains listens no more, so the next one replaces its file."""

    _path = Path()
    _file = (0, 0, 0)

    def bind_file(self, path: Path) -> None:
        """Bind it to a file that the user and his group may use. Raises OSError."""
        mask = os.umask(0o117)
        try:
            self.bind(str(path))
        finally:
            os.umask(mask)
        self._path, self._file = path, _identity(path)

    def has_file(self) -> bool:
        """Whether the file is still this socket's."""
        try:
            return _identity(self._path) == self._file
        except OSError:
            return False

    def remove_file(self) -> None:
        """Remove the file, unless it is another socket's."""
        if self.has_file():
            with suppress(OSError):
                self._path.unlink()


def _identity(path: Path) -> tuple[int, int, int]:
    """What tells a file from a later one of this path: the number of a removed file is soon given to another, so the
    time counts, too. Raises OSError."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


@contextmanager
def _bound_unix(host: str) -> Iterator[socket.socket]:
    if not hasattr(socket, "AF_UNIX"):
        raise DFlashError("this system has no UNIX sockets", hint="choose another --host")
    with _UnixSocket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            _remove_dead(Path(host))
            sock.bind_file(Path(host))
        except OSError as error:
            raise _refusal(host, error) from None
        try:
            yield sock
        finally:
            sock.remove_file()


def _remove_dead(path: Path) -> None:
    """Remove the socket that a crashed server left behind, and nothing else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
