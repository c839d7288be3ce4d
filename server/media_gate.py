"""MediaGate: limits how many prompts with images or audio are prepared at once; the engine's steps come first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from dflash_local.media.content_parts import has_media
from dflash_local.thread_priority import lower_thread_priority

T = TypeVar("T")

MOST = 4  # prompts whose media are fetched and decoded at once: each takes memory, and a thread that may wait for long


class MediaGate:
    """Runs what renders and queues a prompt in a worker thread."""

    def __init__(self) -> None:
        # Decoding a photo keeps a core busy for a quarter of a second, which steps of other requests need.
        self._threads = ThreadPoolExecutor(MOST, "media", initializer=lower_thread_priority)

    async def run(self, messages: Any, work: Callable[[], T]) -> T:
        """`work` in a thread; it waits for its turn if the conversation has media."""
        if not has_media(messages):
            return await asyncio.to_thread(work)
        return await self.run_with_media(work)

    async def run_with_media(self, work: Callable[[], T]) -> T:
        """`work` in a thread of low priority, in its turn."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)
