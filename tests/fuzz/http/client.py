"""An HTTP/1.1 client that sends what it is told, sound or not, and reads whole answers: httpx would refuse half of it,
and takes longer for the other half than the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """What is sent. `headers` come beside Host and Content-Length, unless they name these themselves."""

    method: str
    target: str  # path and query, as bytes of Latin-1
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)

    def bytes(self) -> bytes:
        """The request on the wire."""
        names = {name.lower() for name, _ in self.headers}
        lines = [f"{self.method} {self.target} HTTP/1.1"]
        if "host" not in names:
            lines.append("Host: 127.0.0.1")
        if "content-length" not in names and "transfer-encoding" not in names:
            lines.append(f"Content-Length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + self.body


@dataclass
class Answer:
    """What came back; status 0: the connection ended without an answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Connection:
    """One connection, opened again when the server has closed it."""

    port: int
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def ask(self, request: Request, seconds: float) -> Answer:
        """Send `request` and read the answer. Raises TimeoutError: the server hangs."""
        return await asyncio.wait_for(self._ask(request), seconds)

    async def _ask(self, request: Request) -> Answer:
        kept = self.writer is not None
        answer = await self._exchange(request)
        if kept and not answer.status:  # it may have been closed while nothing was asked
            answer = await self._exchange(request)
        return answer

    async def _exchange(self, request: Request) -> Answer:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        # A refused body may be answered, and the connection reset, before it is read.
        with contextlib.suppress(ConnectionError):
            self.writer.write(request.bytes())
            await self.writer.drain()
        try:
            answer = await self._read(request.method)
        except (ConnectionError, asyncio.IncompleteReadError):
            answer = Answer(0)
        if not answer.status or answer.headers.get("connection", "").lower() == "close":
            await self.close()
        return answer

    async def _read(self, method: str) -> Answer:
        assert self.reader
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        if status < 200:
            return await self._read(method)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = b""
        if method != "HEAD" and status not in (204, 304):
            if headers.get("transfer-encoding") == "chunked":
                body = await self._chunks()
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.reader.read()
                headers["connection"] = "close"
        return Answer(status, headers, body)

    async def _chunks(self) -> bytes:
        assert self.reader
        body = bytearray()
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readuntil(b"\r\n")
        return bytes(body)

    async def close(self) -> None:
        """Close it; the next request opens another."""
        if self.writer:
            self.writer.close()
            with contextlib.suppress(ConnectionError):
                await self.writer.wait_closed()
        self.reader = self.writer = None


async def connected(
    port: int, *, receive_buffer: int = 0, limit: int = 2**16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection; with a small buffer, of so many bytes, its owner soon blocks the server."""
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock, limit=limit)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection without a word: what is on its way is lost."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()
