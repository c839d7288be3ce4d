"""Broken, odd and sound images, in all forms, from clients of whom some leave: every answer is an error that says what
is wrong or the right one, and the server's memory stays as it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.fuzz.media.files import sound
from tests.fuzz.media.soak import Soak
from tests.patience import PATIENCE, wait_until
from tests.projector_files import projector_file
from tests.server.live import serving

SLOTS, CONTEXT = 4, 1024
ROOM = 20  # images of at most 40 tokens each that fit into a slot's context
WARM = 0.3  # of the requests: caches fill, and threads get their heaps
GROWTH = 1.02  # of memory after that


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psutil.Process, str]]:
    """The pocket pair with a projector of random weights, which only sees. It must end well."""
    projector = projector_file(tmp_path_factory.mktemp("media") / "mmproj.gguf")
    flags = ["-m", pocket["target"], "-md", pocket["dflash"], "--mmproj", projector, "--metrics"]
    flags += ["-c", SLOTS * CONTEXT, "-np", SLOTS, "-t", 1, "--cache-ram", 32]
    with serving(flags) as (process, url):
        yield psutil.Process(process.pid), url
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_no_picture_ends_the_server(server: tuple[psutil.Process, str], count: int) -> None:
    process, url = server
    port = urlsplit(url).port
    assert port
    marker = httpx.get(url + "/props").json()["media_marker"]
    soak = Soak(port, sound(), marker, ROOM)
    start = time.monotonic()
    asyncio.run(soak.learn())
    memory, step = [], max(count // 20, 100)
    for first in range(0, count, step):
        asyncio.run(soak.fire(range(first, first + step)))
        assert process.is_running(), soak.faults
        assert soak.faults == []
        wait_until(lambda: "llamacpp:requests_processing 0\n" in httpx.get(url + "/metrics").text)
        memory.append(process.memory_info().rss)
    seconds = time.monotonic() - start
    print(f"{count} requests in {seconds:.0f} s: {dict(soak.statuses)}, {soak.compared} answers compared")
    print(f"memory {[round(size / 2**20, 1) for size in memory]} MiB")
    assert soak.statuses["200"] > 0.2 * count
    assert soak.statuses["400"] > 0.2 * count
    assert soak.compared > 0.1 * count
    if count > 1000:
        assert max(memory) < GROWTH * memory[int(WARM * len(memory))]
