"""Where servers of a measurement are: loopback, or a network namespace that is gone afterwards."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from benchmarks.network import Loopback, Namespace
from benchmarks.rpc_proxy import RPCProxy
from tests.patience import PATIENCE

ECHO = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    while data := connection.recv(9):
        connection.sendall(data)
"""


def echo(network: Loopback) -> str:
    """What comes back of a word sent through a proxy to a server of the network's own loopback."""
    command = [*network.prefix, sys.executable, "-c", ECHO]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            with RPCProxy(int(server.stdout.readline()), network=network) as proxy:
                assert proxy.address.startswith(network.address)
                with socket.create_connection((network.address, proxy.port), timeout=PATIENCE) as client:
                    client.sendall(b"word")
                    return client.recv(9).decode()
        finally:
            server.kill()


def cables() -> set[str]:
    """This machine's ends of the cables of this process's namespaces."""
    return {name for _, name in socket.if_nameindex() if name.startswith(f"dfa{os.getpid():x}n")}


def test_loopback() -> None:
    with Loopback() as network:
        assert echo(network) == "word"


def test_a_namespace() -> None:
    before = cables()
    try:
        network = Namespace()
    except RuntimeError as error:
        pytest.skip(str(error))
    with network:
        assert cables() != before
        assert echo(network) == "word"
        with socket.create_server(("127.0.0.1", 0)) as here, pytest.raises(ConnectionRefusedError):
            network.inside(lambda: socket.create_connection(here.getsockname(), timeout=PATIENCE))
    assert cables() == before


def test_two_namespaces_at_once() -> None:
    before = cables()
    try:
        one = Namespace()
    except RuntimeError as error:
        pytest.skip(str(error))
    with one, Namespace() as other:
        assert one.address != other.address
        assert echo(one) == echo(other) == "word"
    assert cables() == before


def test_what_runs_inside_may_fail() -> None:
    with pytest.raises(ZeroDivisionError):
        Loopback().inside(lambda: 1 // 0)
