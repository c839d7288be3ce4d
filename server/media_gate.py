"""MediaGate: few prompts with images or audio are prepared at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from dflash_local.media.content_parts import has_media

T = TypeVar("T")

MOST = 4  # prompts whose media are fetched and decoded at once: they take memory, and threads that may wait for long


class MediaGate:
    """Runs what renders and queues a prompt in a worker thread."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MOST)

    async def run(self, messages: Any, work: Callable[[], T]) -> T:
        """`work` in a thread; it waits for its turn if the conversation has media."""
        if not has_media(messages):
            return await asyncio.to_thread(work)
        return await self.run_with_media(work)

    async def run_with_media(self, work: Callable[[], T]) -> T:
        """`work` in a thread, in its turn."""
        async with self._places:
            return await asyncio.to_thread(work)
