"""Networks for the servers of a measurement: loopback, or a network namespace.

A `Namespace` is connected by a cable (a pair of virtual interfaces), so that traffic to a server in it goes through an
interface and a route, as to another machine. It needs Linux, root and iproute2.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from ipaddress import IPv4Network, ip_interface
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of <sched.h>
# Networks for documentation (RFC 5737). Some virtual machines use one of them.
_NETWORKS = tuple(IPv4Network(one) for one in ("192.0.2.0/30", "198.51.100.0/30", "203.0.113.0/30"))
_COUNT = itertools.count()  # for unique names of this process's namespaces


class Loopback:
    """This machine as it is.

    Attributes:
        address: the address of servers in it, seen from here.
        prefix: prefix of commands to run in it.
    """

    address: str = "127.0.0.1"
    prefix: Sequence[str] = ()

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enter(self) -> None:
        """Move the calling thread into it permanently; its new sockets are there."""

    def inside(self, function: Callable[[], T]) -> T:
        """Call a function in a thread whose sockets are there. Returns or raises as it does."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                self.enter()
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return future.result()

    def close(self) -> None:
        """Remove it."""


class Namespace(Loopback):
    """A network namespace, created by the constructor and removed by `close`.

    Raises:
        RuntimeError: it cannot be created, and why.
    """

    def __init__(self) -> None:
        network = _free_network()
        near, far = (str(address) for address in network.hosts())
        self.address = far
        number = f"{os.getpid():x}n{next(_COUNT):x}"
        self._name = f"dflash{number}"
        self._cable, there = f"dfa{number}", f"dfb{number}"  # at most 15 characters
        _ip("netns", "add", self._name)
        try:
            _ip("link", "add", self._cable, "type", "veth", "peer", "name", there, "netns", self._name)
            _ip("address", "add", f"{near}/{network.prefixlen}", "dev", self._cable)
            _ip("link", "set", self._cable, "up")
            for command in (
                ("address", "add", f"{far}/{network.prefixlen}", "dev", there), ("link", "set", there, "up"),
                ("link", "set", "lo", "up"),
            ):  # fmt: skip
                _ip("-n", self._name, *command)
        except BaseException:
            self.close()
            raise
        self.prefix = ("ip", "netns", "exec", self._name)

    def enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/run/netns", self._name).open() as namespace:
            if libc.setns(namespace.fileno(), _NEW_NETWORK) != 0:
                raise OSError(ctypes.get_errno(), f"can't enter network namespace {self._name}")

    def close(self) -> None:
        """Remove it, and its cable.

        The cable is removed explicitly, since the kernel would remove it with the namespace only later.
        """
        if self._has_cable():
            _ip("link", "delete", self._cable)
        _ip("netns", "delete", self._name)

    def _has_cable(self) -> bool:
        return any(name == self._cable for _, name in socket.if_nameindex())


def _free_network() -> IPv4Network:
    links = json.loads(_ip("-json", "-4", "address"))
    taken = [ip_interface(f"{one['local']}/{one['prefixlen']}").network for link in links for one in link["addr_info"]]
    for network in _NETWORKS:
        if not any(network.overlaps(one) for one in taken):
            return network
    raise RuntimeError("a network namespace needs a free network for documents; all are in use here")


def _ip(*arguments: str) -> str:
    if not (ip := shutil.which("ip")):
        raise RuntimeError("a network namespace needs `ip` (Debian: apt install iproute2)")
    done = subprocess.run([ip, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"a network namespace needs root: ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
