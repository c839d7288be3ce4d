"""MediaGate: prompts with media are prepared by threads of low priority, if the system lets them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import pytest

from dflash_local.server.media_gate import MOST, MediaGate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads keep their priority")
PICTURE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]


def how_urgent() -> tuple[int, int]:
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)


def test_others_go_first() -> None:
    async def ask() -> Any:
        gate = MediaGate()
        return await gate.run(PICTURE, how_urgent), await gate.run([{"role": "user", "content": "x"}], how_urgent)

    usual = how_urgent()
    assert asyncio.run(ask()) == ((os.SCHED_BATCH, max(5, usual[1])), usual)
    assert how_urgent() == usual


def test_a_sandbox_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert asyncio.run(MediaGate().run(PICTURE, lambda: "done")) == "done"


def test_few_at_once() -> None:
    running = most = 0

    async def ask() -> None:
        gate = MediaGate()
        await asyncio.gather(*(gate.run(PICTURE, work) for _ in range(3 * MOST)))

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1

    asyncio.run(ask())
    assert 1 < most <= MOST
