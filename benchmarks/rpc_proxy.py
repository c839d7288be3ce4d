"""A proxy before an RPC server: it adds delay in each direction, like a network, and counts the traffic.

The delay is latency, not bandwidth: bytes are forwarded in order, each `delay` seconds after its arrival.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from benchmarks.network import Loopback

# ggml-rpc.cpp's commands by their numbers.
COMMANDS = (
    "ALLOC_BUFFER", "GET_ALIGNMENT", "GET_MAX_SIZE", "BUFFER_GET_BASE", "FREE_BUFFER", "BUFFER_CLEAR", "SET_TENSOR",
    "SET_TENSOR_HASH", "GET_TENSOR", "COPY_TENSOR", "GRAPH_COMPUTE", "GET_DEVICE_MEMORY", "INIT_TENSOR",
    "GET_ALLOC_SIZE", "HELLO", "DEVICE_COUNT", "GRAPH_RECOMPUTE", "MEMSET_TENSOR",
)  # fmt: skip
_HEADER = struct.Struct("<BQ")  # command, bytes that follow


class Traffic:
    """The traffic since the last `clear`: messages by command, bytes in each direction, and round trips (how often the
    server sent after the client)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Start counting from zero."""
        with self._lock:
            self.commands: Counter[str] = Counter()
            self.sent = self.received = self.round_trips = 0
            self._asked = False

    def on_sent(self, data: bytes) -> None:
        """Count bytes of the client."""
        with self._lock:
            self.sent += len(data)
            self._asked = True

    def on_command(self, name: str) -> None:
        """Count a message of the client."""
        with self._lock:
            self.commands[name] += 1

    def on_received(self, data: bytes) -> None:
        """Count bytes of the server."""
        with self._lock:
            self.received += len(data)
            self.round_trips += self._asked
            self._asked = False


class _Commands:
    """Finds the commands in the client's bytes."""

    def __init__(self, found: Callable[[str], None]) -> None:
        self._found = found
        self._left, self._header = 0, b""

    def feed(self, data: bytes) -> None:
        while data:
            skipped = min(self._left, len(data))
            self._left -= skipped
            data = data[skipped:]
            missing = _HEADER.size - len(self._header)
            self._header, data = self._header + data[:missing], data[missing:]
            if len(self._header) == _HEADER.size:
                command, self._left = _HEADER.unpack(self._header)
                self._header = b""
                self._found(COMMANDS[command] if command < len(COMMANDS) else str(command))


class _Greeting:
    """Sets bits of what the server's greeting reports about ops (ggml_ops/rpc/own_ops.h)."""

    _AT = 8 + 3  # after the answer's size and the three numbers of the version

    def __init__(self) -> None:
        self._seen = 0

    def feed(self, data: bytes, lacks: int) -> bytes:
        at = self._AT - self._seen
        self._seen += len(data)
        if not 0 <= at < len(data):
            return data
        return data[:at] + bytes([data[at] | lacks]) + data[at + 1 :]


class _Lies:
    """Replaces answers longer than an address or a size by nonsense, like an untrustworthy server."""

    _SIZE = struct.Struct("<Q")  # precedes each answer

    def __init__(self) -> None:
        self._left, self._size, self._short = 0, b"", True

    def feed(self, data: bytes, lies: bool) -> bytes:
        out = b""
        while data:
            if self._left:
                part, data = data[: self._left], data[self._left :]
                self._left -= len(part)
                out += b"\x7f" * len(part) if lies and not self._short else part
            missing = self._SIZE.size - len(self._size)
            self._size, out, data = self._size + data[:missing], out + data[:missing], data[missing:]
            if len(self._size) == self._SIZE.size:
                (self._left,) = self._SIZE.unpack(self._size)
                self._size, self._short = b"", self._left <= 64
        return out


class RPCProxy:
    """Listens on a free port and forwards to the server at `port` of loopback.

    Args:
        delay: seconds of delay in each direction.
        network: the network of the proxy and its server.
        cut_at: the command before which connections are cut, as if the server had died; None: never.
        lacks: bits of the greeting's byte about ops that the server seems to set.

    Attributes:
        lies: replace the values that the server returns by nonsense.
    """

    def __init__(
        self,
        port: int,
        delay: float = 0.0,
        cut_at: str | None = None,
        network: Loopback | None = None,
        lacks: int = 0,
    ) -> None:
        self.delay, self.cut_at, self.lacks = delay, cut_at, lacks
        self.lies = False
        self.traffic = Traffic()
        self._target = port
        self._network = network or Loopback()
        self._listener = self._network.inside(lambda: socket.create_server((self._network.address, 0)))
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        """The value for --rpc."""
        return f"{self._network.address}:{self.port}"

    def __enter__(self) -> RPCProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for one in list(self._sockets):
            _cut(one)

    def _accept(self) -> None:
        self._network.enter()
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _cut(client)
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.add(one)

            def on_command(name: str, client: socket.socket = client, server: socket.socket = server) -> None:
                self.traffic.on_command(name)
                if name == self.cut_at:
                    _cut(client)
                    _cut(server)

            commands, greeting, answers = _Commands(on_command), _Greeting(), _Lies()

            def on_sent(data: bytes, commands: _Commands = commands) -> bytes:
                self.traffic.on_sent(data)
                commands.feed(data)
                return data

            def on_received(data: bytes, greeting: _Greeting = greeting, answers: _Lies = answers) -> bytes:
                self.traffic.on_received(data)
                return answers.feed(greeting.feed(data, self.lacks), self.lies)

            self._pipe(client, server, on_sent)
            self._pipe(server, client, on_received)

    def _pipe(self, source: socket.socket, target: socket.socket, seen: Callable[[bytes], bytes]) -> None:
        under_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def read() -> None:
            data = b"?"
            while data:
                try:
                    data = source.recv(1 << 20)
                except OSError:
                    data = b""
                under_way.put((time.perf_counter() + self.delay, seen(data)))

        def write() -> None:
            while True:
                due, data = under_way.get()
                if (left := due - time.perf_counter()) > 0:
                    time.sleep(left)
                try:
                    if not data:
                        raise ConnectionError
                    target.sendall(data)
                except OSError:
                    for one in (source, target):
                        _cut(one)
                        self._sockets.discard(one)
                    return

        for work in (read, write):
            threading.Thread(target=work, daemon=True).start()


def _cut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
