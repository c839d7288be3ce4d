"""Clients that are slow, silent, half gone or deaf: everyone else is served as before, and memory stays where it was.

The limits themselves are tested in test_limits.py; here many clients break them at once, against the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.fuzz.http.client import connected, reset
from tests.patience import PATIENCE, wait_until
from tests.server.live import serving

TIMEOUT = 2  # --timeout of the server
# The most that a crowd of such clients may cost, each of them and in all.
PER_CLIENT, IN_ALL = 96 * 1024, 48 * 2**20

QUESTION = {"prompt": "<|im_start|>user\nWhat is 48 plus 24?<|im_end|>\n<|im_start|>assistant\n", "n_predict": 24}
GREEDY = {**QUESTION, "temperature": 0, "cache_prompt": False}

Attack = Callable[["Victim"], Awaitable[None]]


class Victim:
    """The server as its clients see it."""

    def __init__(self, process: psutil.Process, url: str) -> None:
        self.process, self.url = process, url
        port = urlsplit(url).port
        assert port
        self.port = port

    async def connect(self, *, receive_buffer: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection; with a small buffer its owner soon blocks the server."""
        return await connected(self.port, receive_buffer=receive_buffer, limit=1024)

    def slots_busy(self) -> int:
        return sum(slot["is_processing"] for slot in httpx.get(self.url + "/slots", timeout=60).json())


@pytest.fixture(scope="module")
def victim(pocket: dict[str, Path]) -> Iterator[Victim]:
    flags = ["-m", pocket["target"], "-md", pocket["dflash"], "-c", 4096, "-np", 4, "-t", 1, "--timeout", TIMEOUT]
    with serving(flags) as (process, url):
        yield Victim(psutil.Process(process.pid), url)
        process.terminate()
        assert process.wait(PATIENCE) == 0


@contextlib.asynccontextmanager
async def served_as_before(victim: Victim, n_clients: int, each: int = PER_CLIENT) -> AsyncIterator[httpx.AsyncClient]:
    """Ask a good question before, again and again during, and after what happens inside; memory is looked at."""
    async with httpx.AsyncClient(base_url=victim.url, timeout=PATIENCE) as client:

        async def ask() -> str:
            answer = await client.post("/completion", json=GREEDY)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["content"])

        async def ask_again() -> int:
            count = 0
            while True:
                assert await ask() == expected
                count += 1
                await asyncio.sleep(0.1)

        expected = await ask()
        assert len(expected) > 20
        memory = victim.process.memory_info().rss
        asking = asyncio.create_task(ask_again())
        yield client
        assert not asking.done(), asking.exception()
        growth = victim.process.memory_info().rss - memory
        asking.cancel()
        assert await ask() == expected
    assert growth < n_clients * each + IN_ALL, f"{growth / 2**20:.0f} MiB more for {n_clients} clients"


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What the server still says before it ends the connection."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(65536):
            said += part
    return said


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def post(path: str, body: Any) -> bytes:
    raw = json.dumps(body).encode()
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {len(raw)}") + raw


async def drip(victim: Victim, beginning: bytes, drop: bytes) -> bytes:
    """Send `beginning`, then `drop` five times a second until the server has enough of it."""
    reader, writer = await victim.connect()
    writer.write(beginning)
    end = asyncio.create_task(ended(reader))
    with contextlib.suppress(ConnectionError):
        while not end.done():
            writer.write(drop)
            await writer.drain()
            await asyncio.wait([end], timeout=0.2)
    said = await end
    writer.close()
    return said


@pytest.mark.parametrize(
    ("beginning", "drop"),
    [
        pytest.param(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X-A: b\r\n", id="head", marks=pytest.mark.slow),
        pytest.param(head("POST", "/completion", "Content-Length: 100000") + b"{", b" ", id="body"),
        pytest.param(
            head("POST", "/completion", "Transfer-Encoding: chunked"),
            b"1\r\n \r\n",
            id="chunks",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_slow_requests(victim: Victim, beginning: bytes, drop: bytes) -> None:
    count = 200

    async def attack() -> list[bytes]:
        async with served_as_before(victim, count):
            return await asyncio.wait_for(
                asyncio.gather(*(drip(victim, beginning, drop) for _ in range(count))), TIMEOUT + PATIENCE
            )

    said = asyncio.run(attack())
    assert all(not one or one.startswith(b"HTTP/1.1 408") for one in said), said[0]
    assert any(one.startswith(b"HTTP/1.1 408") for one in said)


def test_half_closed(victim: Victim) -> None:
    """A client that says it sends no more gets its answer, or its request is ended; no slot stays busy."""

    async def one(sent: bytes) -> bytes:
        reader, writer = await victim.connect()
        writer.write(sent)
        writer.write_eof()
        said = await ended(reader)
        writer.close()
        return said

    long = {**GREEDY, "n_predict": 400, "ignore_eos": True}
    requests = [
        post("/completion", GREEDY),
        post("/completion", {**long, "stream": True}),
        post("/completion", long),
        post("/completion", GREEDY)[:-10],
        head("GET", "/health")[:-2],
        head("GET", "/health"),
        b"",
    ]

    async def attack() -> list[bytes]:
        async with served_as_before(victim, len(requests) * 8):
            return await asyncio.wait_for(asyncio.gather(*(one(sent) for sent in requests * 8)), PATIENCE * 2)

    said = asyncio.run(attack())
    assert all(not one or one.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400")) for one in said)
    _idle_again(victim)


def test_reset_in_the_middle(victim: Victim) -> None:
    """Clients that vanish without a word, at every point of a request and of its answer."""
    sent = post("/completion", {**GREEDY, "n_predict": 400, "ignore_eos": True, "stream": True})

    async def one(number: int) -> None:
        _, writer = await victim.connect()
        writer.write(sent[: 1 + number * len(sent) // 60])
        await writer.drain()
        await asyncio.sleep(0.01 * (number % 30))
        reset(writer)

    async def attack() -> None:
        async with served_as_before(victim, 60):
            await asyncio.gather(*(one(number) for number in range(60)))

    asyncio.run(attack())
    _idle_again(victim)


@pytest.mark.parametrize(
    "asked", [pytest.param(False, id="silent"), pytest.param(True, id="kept", marks=pytest.mark.slow)]
)
def test_a_thousand_idle_connections(victim: Victim, asked: bool) -> None:
    count = 1000

    async def one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await victim.connect()
        if asked:
            writer.write(head("GET", "/health"))
            assert (await reader.read(1024)).startswith(b"HTTP/1.1 200")
        return reader, writer

    async def attack() -> None:
        async with served_as_before(victim, count) as client:
            open_ = await asyncio.gather(*(one() for _ in range(count)))
            assert (await client.get("/health")).status_code == 200
            # They are not kept for ever.
            await asyncio.wait_for(asyncio.gather(*(ended(reader) for reader, _ in open_)), TIMEOUT + PATIENCE)
            for _, writer in open_:
                writer.close()

    _allow_files(count + 200)
    files = victim.process.num_fds()
    asyncio.run(attack())
    wait_until(lambda: victim.process.num_fds() <= files + 8)


# How many ask for what, and bytes that the server may hold for each: an answer in one piece is in memory until it is
# sent, or the client is let go; while it is written, twice. The system's buffers hold all of a stream.
DEAF = {
    "stream": (8, {**GREEDY, "n_predict": -1, "ignore_eos": True, "stream": True}, PER_CLIENT),
    "answers": (32, None, PER_CLIENT),
    "answer": (8, {"content": "One, two, " * 60_000, "with_pieces": True}, 40 * 2**20),
}


@pytest.mark.parametrize(
    "asked", ["stream", *(pytest.param(name, marks=pytest.mark.slow) for name in DEAF if name != "stream")]
)
def test_clients_that_never_read(victim: Victim, asked: str) -> None:
    """The system's buffers fill up; such a client does not hold a slot, and is let go."""
    count, body, each = DEAF[asked]
    path = "/tokenize" if body and "content" in body else "/completion"
    sent = post(path, body) if body else b"".join([head("GET", "/props")] * 400)

    async def one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await victim.connect(receive_buffer=4096)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(sent)
        return reader, writer

    async def attack() -> None:
        async with served_as_before(victim, count, each):
            open_ = await asyncio.gather(*(one() for _ in range(count)))
            await asyncio.sleep(2 * TIMEOUT)
            await asyncio.to_thread(_idle_again, victim)  # though they are still there
            for _, writer in open_:
                writer.transport.abort()

    files = victim.process.num_fds()
    asyncio.run(attack())
    _idle_again(victim)
    wait_until(lambda: victim.process.num_fds() <= files + 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "padding",
    [
        pytest.param(b'"%s"' % (b"a" * 30 * 2**20), id="text"),
        pytest.param(b"[%s0]" % (b"[]," * 10 * 2**20), id="lists"),
    ],
)
def test_many_large_bodies(victim: Victim, padding: bytes) -> None:
    """All of them together are bounded, not only each."""
    count = 24
    body = b'{"content": "a", "padding": ' + padding + b"}"

    async def one() -> bytes:
        reader, writer = await victim.connect()
        with contextlib.suppress(ConnectionError):
            writer.write(head("POST", "/tokenize", f"Content-Length: {len(body)}", "Connection: close") + body)
            await writer.drain()
        said = await ended(reader)
        writer.close()
        return said[9:12]

    peak = 0

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, victim.process.memory_info().rss)
            await asyncio.sleep(0.05)

    async def attack() -> list[bytes]:
        watching = asyncio.create_task(watch())
        said = await asyncio.wait_for(asyncio.gather(*(one() for _ in range(count))), PATIENCE * 4)
        watching.cancel()
        return said

    before = victim.process.memory_info().rss
    said = asyncio.run(attack())
    assert set(said) <= {b"", b"200", b"408", b"413", b"503"}, said
    # 256 MiB of bodies at a time, each as bytes and as text, while one of them is read twice.
    assert peak - before < 1024 * 2**20, f"{(peak - before) >> 20} MiB more"
    assert httpx.post(victim.url + "/completion", json=GREEDY, timeout=60).status_code == 200


def _idle_again(victim: Victim) -> None:
    wait_until(lambda: victim.slots_busy() == 0)


def _allow_files(count: int) -> None:
    if os.name == "posix":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < count:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
