"""Work that is cancelled when its client disconnects, and work beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from starlette.types import Receive

from dflash_local.server.http_errors import ClientLeft

T = TypeVar("T")


async def disconnected(receive: Receive) -> None:
    """Wait until the client of `receive`, whose body has been read, disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do `work` while the block runs. At the block's end it is cancelled and awaited."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await ended(task)


async def ended(task: asyncio.Task[None] | None) -> None:
    """Cancel a task, if there is one, and wait for its end."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled if the client of `receive` disconnects.

    Raises:
        ClientLeft: it did.
    """
    task, watcher = asyncio.create_task(work), asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return await task
    finally:
        task.cancel()
        watcher.cancel()
