"""A device of its own: an RPC server with ggml's CPU backend. `python -m tests.placement.rpc_server PORT`."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dflash_local.native import library_path, load

# The names that the other libraries were linked with: one by another name would be a second copy.
GGML, RPC = "libggml.so", "libggml-rpc.so"


def has_rpc() -> bool:
    """Whether the library was built with it."""
    return (library_path().parent / RPC).is_file()


def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    load()
    folder: Path = library_path().parent
    return ctypes.CDLL(str(folder / GGML)), ctypes.CDLL(str(folder / RPC))


def add_devices(endpoints: Sequence[str]) -> None:
    """Let this process use the servers' devices, RPC0, RPC1, ... Every engine of the process sees them from now on."""
    ggml, rpc = _libraries()
    rpc.ggml_backend_rpc_add_server.restype = ctypes.c_void_p
    for endpoint in endpoints:
        reg = rpc.ggml_backend_rpc_add_server(endpoint.encode())
        assert reg, f"no RPC server answers at {endpoint}"
        ggml.ggml_backend_register(ctypes.c_void_p(reg))


def serve(port: int) -> None:
    """Serve until the process ends."""
    ggml, rpc = _libraries()
    ggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
    devices = (ctypes.c_void_p * 1)(ggml.ggml_backend_dev_by_type(0))  # GGML_BACKEND_DEVICE_TYPE_CPU
    n_threads, n_devices = ctypes.c_size_t(1), ctypes.c_size_t(1)
    rpc.ggml_backend_rpc_start_server(f"127.0.0.1:{port}".encode(), None, n_threads, n_devices, devices)


@contextmanager
def rpc_servers(n: int, log: Path) -> Iterator[list[str]]:
    """Endpoints of n servers, each a process."""
    with ExitStack() as stack:
        endpoints = []
        for i in range(n):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            lines = stack.enter_context((log / f"rpc{i}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(port)], stdout=lines, stderr=subprocess.STDOUT
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            _wait_for(port, process)
            endpoints.append(f"127.0.0.1:{port}")
        yield endpoints


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "an RPC server ended"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"no RPC server on port {port}")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
