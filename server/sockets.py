"""Listening sockets: TCP and UNIX, opened before the model loads, so that an address in use fails at once."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dflash_local.errors import DFlashError

UNIX_SUFFIX = ".sock"
BACKLOG = 2048
# The system's buffer for what a client has not read yet. Left to itself it grows to megabytes for each connection.
SEND_BUFFER = 256 * 1024


@contextmanager
def listening(hosts: Sequence[str], port: int, *, reuse_port: bool = False) -> Iterator[list[socket.socket]]:
    """Sockets that listen at every host, which is an address, a name, or the path of a UNIX socket. With port 0 all
    take the port that is free for the first. UNIX sockets are removed at the end.

    Raises:
        DFlashError: an address cannot be had.
    """
    with ExitStack() as stack:
        sockets = []
        n_tcp = sum(not is_unix(host) for host in hosts)
        for host in hosts:
            if is_unix(host):
                sockets.append(stack.enter_context(_unix(Path(host))))
                continue
            sock = stack.enter_context(listen(host, port, reuse_port=reuse_port, only_v6=n_tcp > 1))
            port = sock.getsockname()[1]
            sockets.append(sock)
        yield sockets


def is_unix(host: str) -> bool:
    """Whether --host means a UNIX socket."""
    return host.endswith(UNIX_SUFFIX)


def listen(host: str, port: int, *, reuse_port: bool = False, only_v6: bool = False) -> socket.socket:
    """A listening TCP socket; `only_v6` keeps :: from taking the IPv4 addresses as well."""
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
        sock.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        sock.close()
        hint = _port_hint(error, port) or "choose another --port or --host"
        raise DFlashError(f"cannot listen on {host}:{port}: {error}", hint=hint) from None
    return sock


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


@contextmanager
def _unix(path: Path) -> Iterator[socket.socket]:
    """A listening UNIX socket that the user and his group may use."""
    if not hasattr(socket, "AF_UNIX"):
        raise DFlashError("this system has no UNIX sockets", hint="choose another --host")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            _remove_dead(path)
            mask = os.umask(0o117)
            try:
                sock.bind(str(path))
            finally:
                os.umask(mask)
            sock.listen(BACKLOG)
        except OSError as error:
            raise DFlashError(f"cannot listen on {path}: {error}", hint="choose another --host") from None
        try:
            yield sock
        finally:
            with suppress(OSError):
                path.unlink()


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
