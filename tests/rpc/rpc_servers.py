"""RPC servers on loopback, in processes of their own: as many further devices as one likes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dflash_local.engine import Engine
from tests.patience import wait_until


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RPCServer:
    """`dflash-local rpc-server` with one thread.

    Attributes:
        devices: names of those that it lends from the next start on, such as "CPU,CPU"; None: the command's own choice.
    """

    def __init__(self, port: int | None = None, devices: str | None = None) -> None:
        self.port, self.devices = port or free_port(), devices
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen."""
        flags = ["-p", str(self.port), "-t", "1", *(["-d", self.devices] if self.devices else [])]
        command = [sys.executable, "-m", "dflash_local.cli", "rpc-server", *flags]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        wait_until(self._listens)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the RPC server ended"
        with socket.socket() as probe:  # not connected to: it would have to serve that one first
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError:
                return True
            return False

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It is there, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def rpc_servers(count: int) -> Iterator[list[RPCServer]]:
    """So many of them."""
    with ExitStack() as stack:
        servers = []
        for _ in range(count):
            server = RPCServer()
            stack.callback(server.kill)
            servers.append(server)
        yield servers


def addresses(servers: list[RPCServer]) -> str:
    """As --rpc takes them."""
    return ",".join(server.address for server in servers)


def device_names(target: Path, rpc: str) -> list[str]:
    """What this process calls the servers' devices: numbers go on from engine to engine."""
    with Engine(target, rpc=rpc, n_ctx=256, n_gpu_layers=99, warmup=False) as engine:
        return [name for name in engine.info["placement"] if name.startswith("RPC")]
