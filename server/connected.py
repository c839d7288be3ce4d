"""Work that is given up when its client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from dflash_local.server.errors import HTTPError

T = TypeVar("T")


class ClientLeft(HTTPError):
    """Nobody waits for the answer any more."""

    def __init__(self) -> None:
        super().__init__(400, "the client left")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client of `receive`, whose body has been read, disconnects.

    Raises:
        ClientLeft: it did.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watcher = asyncio.create_task(work), asyncio.create_task(watch())
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return await task
    finally:
        task.cancel()
        watcher.cancel()
