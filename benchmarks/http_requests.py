"""The cost of HTTP: requests per second, and the server's own CPU time per request, over a scripted engine.

Usage: python benchmarks/http_requests.py [--requests 2000] [--clients 4] [--tree DIR ...]

The engine answers at once from a script (tests/fake_native.py), so that everything else is measured: reading and
checking bodies, the event loop, queues between threads, JSON. With `--tree`, checkouts take turns, one round each, in
alternating order. CPU time is the steadier number on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks.gpu_proof.unpacked import link_package
from benchmarks.http_load import Server, together
from dflash_local.baseline import HOST

ROOT = Path(__file__).resolve().parent.parent
MESSAGES = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Say something. " * 40}]
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 1, "max_tokens": 16, "stop": ["\n\n"]}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES, **SAMPLING}),
    "chat stream": ("/v1/chat/completions", {"messages": MESSAGES, **SAMPLING, "stream": True}),
    "completion": ("/v1/completions", {"prompt": "x" * 400, **SAMPLING}),
    "tokenize": ("/tokenize", {"content": "x" * 400}),
    "health": ("/health", {}),
}
SERVER = """
import asyncio, socket, sys
sys.path[0] = sys.argv[1]  # the checkout in its installed shape, before the installed package
from dflash_local.engine import Engine
from dflash_local.server.app import create_app
from dflash_local.server.process import make_server
from tests.fake_native import FakeNative

# Our own socket, since older checkouts open theirs elsewhere. Without the protocol argument, asyncio would leave Nagle
# on.
sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
sock.bind(("127.0.0.1", int(sys.argv[-1])))
sock.listen(2048)
app = create_app(lambda _progress: Engine.over(FakeNative(b"hello world, said", n_slots=8)))
sys.setswitchinterval(0.0005)
asyncio.run(make_server(app, drain_timeout=5).serve(sockets=[sock]))
"""


def server_of(tree: Path, folder: Path) -> Server:
    """A checkout's server in a process of its own; `folder` gets the checkout in its installed shape, and the log."""
    folder.mkdir()
    link_package(folder, tree)
    (folder / "tests").symlink_to(tree / "tests")
    return Server(tree.name, [sys.executable, "-c", SERVER, str(folder)], folder / "log")


def request(path: str, body: dict[str, Any], port: int) -> bytes:
    data = json.dumps(body).encode() if body else b""
    head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def exchange(connection: socket.socket, message: bytes) -> bytes:
    """Send a request and read its whole answer."""
    connection.sendall(message)
    answer = b""
    while True:
        answer += connection.recv(65536)
        head, mark, body = answer.partition(b"\r\n\r\n")
        if not mark:
            continue
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if len(body) >= int(length) if length else body.endswith(b"0\r\n\r\n"):
            assert head.startswith(b"HTTP/1.1 200"), answer
            return answer


def measure(server: Server, path: str, body: dict[str, Any], n_requests: int, n_clients: int) -> tuple[float, float]:
    """Requests per second, and CPU milliseconds of the server per request."""
    message = request(path, body, server.port)

    def client() -> None:
        with socket.create_connection((HOST, server.port)) as connection:
            for _ in range(n_requests // n_clients):
                exchange(connection, message)

    cpu = server.cpu_seconds()
    wall = together(client, n_clients)
    return n_requests / wall, 1e3 * (server.cpu_seconds() - cpu) / n_requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="of each kind and round (default: 2000)")
    parser.add_argument("--clients", type=int, default=4, help="connections (default: 4)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument("--tree", type=Path, nargs="+", default=[ROOT], help="checkouts (default: this one)")
    args = parser.parse_args()
    trees = [tree.resolve() for tree in args.tree]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="http-requests-")))
        servers = {tree: stack.enter_context(server_of(tree, folder / str(i))) for i, tree in enumerate(trees)}
        for name, (path, body) in REQUESTS.items():
            found: dict[Path, list[tuple[float, float]]] = {tree: [] for tree in servers}
            for turn in range(args.rounds):
                for tree, server in list(servers.items())[:: 1 - 2 * (turn % 2)]:
                    found[tree].append(measure(server, path, body, args.requests, args.clients))
            for tree, rounds in found.items():
                speed, cpu = (statistics.median(column) for column in zip(*rounds, strict=True))
                print(f"{name:12} {tree.name:10} {speed:7.0f} requests/s  {cpu:6.3f} ms CPU", flush=True)


if __name__ == "__main__":
    main()
