"""Recovery: an engine that was lost with an RPC server is loaded again once that server is back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from dflash_local.errors import EngineLostError, RPCError
from dflash_local.server.connected import ended
from dflash_local.server.http_errors import HTTPError

log = logging.getLogger(__name__)

# Seconds between two checks of the servers: the first pause, and the longest.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 10.0


class Recovery:
    """Whether an engine is lost now, for one event loop.

    Args:
        free, load: end the lost engine, and make a new one; `load` raises RPCError as long as a server is not back.
        give_up: called with any other error of `load`, which ends the recovery.
        held: keeps the engine awake until it is left.
    """

    def __init__(
        self,
        free: Callable[[], Awaitable[None]],
        load: Callable[[], Coroutine[Any, Any, None]],
        give_up: Callable[[Exception], None],
        held: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._free, self._load, self._give_up, self._held = free, load, give_up, held
        self.refusal: HTTPError | None = None  # the 503 for requests while the engine is lost, with its newest reason
        self._is_lost = False  # since the last attempt began
        self._running: asyncio.Task[None] | None = None

    def begin(self, cause: EngineLostError) -> None:
        """Begin to recover a lost engine, or to recover it again."""
        self._is_lost = True
        if self.refusal is None:
            self.refusal = _refusal(cause)
            with ExitStack() as held:
                held.enter_context(self._held())
                self._running = asyncio.create_task(self._run(held.pop_all()))

    async def stop(self) -> None:
        """Stop recovering, after the load that is under way."""
        await ended(self._running)

    async def _run(self, held: ExitStack) -> None:
        with held:
            while self._is_lost:  # perhaps once more, before this task goes on behind the load
                self._is_lost = False
                await self._recover()
            self.refusal = None

    async def _recover(self) -> None:
        start = time.monotonic()
        await self._free()
        log.warning("waiting for the RPC servers, to load the model again")
        wait = _FIRST_WAIT
        while True:
            await asyncio.sleep(wait)
            try:
                # A task of its own: a thread that loads cannot be cancelled.
                loading = asyncio.create_task(self._load())
                await asyncio.shield(loading)
            except asyncio.CancelledError:
                await asyncio.gather(loading, return_exceptions=True)
                raise
            except RPCError as error:
                log.info("not yet: %s", error)
                self.refusal = _refusal(error)
                wait = min(1.5 * wait, _LONGEST_WAIT)
                continue
            except Exception as error:
                self._give_up(error)
                return
            log.info("the model is loaded again, after %.1f s", time.monotonic() - start)
            return


def _refusal(cause: EngineLostError | RPCError) -> HTTPError:
    return HTTPError(
        503,
        f"{cause.message}; the model is loaded again as soon as it is back",
        code="rpc_server_lost",
        retry_after=_LONGEST_WAIT,
    )
