"""Damaged requests to all endpoints of the live server: none may end it, hang it or be answered with a fault of its
own, and sound requests are answered as before."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from dflash_local.server.app import create_app
from tests.fuzz.conftest import OFF
from tests.fuzz.http.barrage import Barrage, granted, witness
from tests.fuzz.http.sound import endpoints, witnesses

# Requests between two looks at the witnesses.
ROUND = 5000
# What allocator and caches take after the first quarter.
SETTLING = 48 * 2**20


@pytest.mark.parametrize("count", [800, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_request_is_answered_with_a_fault(server: tuple[psutil.Process, str], count: int) -> None:
    process, url = server
    found = endpoints(create_app(lambda _: None))  # type: ignore[arg-type, return-value]
    port = urlsplit(url).port
    assert port
    paths = {endpoint.path for endpoint in found}
    asked = {path: body for path, body in witnesses().items() if path in paths}
    before = asyncio.run(witness(port, asked))
    for number, endpoint in enumerate(found):
        if endpoint.method == "POST":
            found[number], refused = asyncio.run(granted(port, endpoint))
            print(f"{endpoint.path} refused of its sound bodies: {refused}")
    barrage = Barrage(port, found, OFF)
    memory, start = [], time.monotonic()
    for first in range(0, count, ROUND):
        asyncio.run(barrage.fire(range(first, min(first + ROUND, count))))
        assert process.is_running(), barrage.outcome.faults
        assert barrage.outcome.faults == []
        assert asyncio.run(witness(port, asked)) == before
        memory.append(process.memory_info().rss)
    outcome = barrage.outcome
    print(f"{outcome.total()} requests in {time.monotonic() - start:.0f} s; memory {[m >> 20 for m in memory]} MiB")
    for name, counter in sorted(outcome.statuses.items()):
        print(f"  {name}: {dict(sorted(counter.items()))}")
    for seconds, what in outcome.slowest:
        print(f"  {seconds:.1f} s: {what}")
    assert outcome.total() == count
    assert memory[-1] - memory[len(memory) // 4] < SETTLING
    # Mutations that no endpoint takes would reach nothing behind the first check.
    for path in asked:
        answered = outcome.statuses[f"POST {path}"]
        assert answered[200] > 0.1 * answered.total()
    assert "llamacpp:requests_processing 0\n" in httpx.get(url + "/metrics").text
