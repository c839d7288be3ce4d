"""EventStream: several generations as one stream of events, all of which end when the client goes away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dflash_local.errors import DFlashError
from dflash_local.generation import Chunk, Completion, Generation
from dflash_local.server.connected import beside, disconnected
from dflash_local.server.formats.events import STREAM_HEADERS
from dflash_local.server.formats.reply import Body, Reply
from dflash_local.server.http_errors import Cancelled

log = logging.getLogger(__name__)


@asynccontextmanager
async def cancelled_on_disconnect(receive: Receive, generations: Sequence[Generation]) -> AsyncIterator[None]:
    """Cancel the generations when the client disconnects, and in any case when the block ends."""

    def cancel() -> None:
        for generation in generations:
            generation.cancel()

    async def watch() -> None:
        await disconnected(receive)
        cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        cancel()


async def merged(generations: Sequence[Generation]) -> AsyncGenerator[tuple[int, Chunk | Completion], None]:
    """(choice, chunk) as they come, and (choice, completion) at the end of each."""
    if len(generations) == 1:  # almost always: no queue between
        async for chunk in generations[0]:
            yield 0, chunk
        yield 0, await generations[0].completed()
        return

    queue: asyncio.Queue[tuple[int, Chunk | Completion | Exception]] = asyncio.Queue()

    async def pump(index: int, generation: Generation) -> None:
        try:
            async for chunk in generation:
                queue.put_nowait((index, chunk))
            queue.put_nowait((index, await generation.completed()))
        except Exception as error:
            queue.put_nowait((index, error))

    pumps = [asyncio.create_task(pump(index, generation)) for index, generation in enumerate(generations)]
    try:
        open_choices = len(pumps)
        while open_choices:
            index, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            open_choices -= isinstance(item, Completion)
            yield index, item
    finally:
        for task in pumps:
            task.cancel()


async def events(
    reply: Reply, generations: Sequence[Generation], n_prompts: int, *, include_usage: bool
) -> AsyncGenerator[list[Body], None]:
    """The stream's events, those of one pass together. Raises Cancelled."""
    begun: set[int] = set()
    completions: dict[int, Completion] = {}
    async with aclosing(merged(generations)) as items:
        async for index, item in items:
            is_first = index not in begun
            if isinstance(item, Chunk):
                bodies = chunk_bodies(reply, index, item, is_first=is_first)
                if item.progress is None:
                    begun.add(index)
            elif item.finish_reason == "cancelled":  # what there is must not look like a whole answer
                raise Cancelled
            else:
                completions[index] = item
                bodies = [*(reply.begin(index) if is_first else ()), *reply.end(index, item)]
                if len(completions) == len(generations):
                    in_order = [completions[choice] for choice in range(len(generations))]
                    if include_usage:
                        bodies += reply.usage(in_order, n_prompts)
                    reply.close(bodies, in_order)
            if bodies:
                yield bodies


def chunk_bodies(reply: Reply, index: int, chunk: Chunk, *, is_first: bool) -> list[Body]:
    """What a chunk adds to the stream; `is_first`: the answer of its choice has not begun yet."""
    if chunk.progress is not None:
        bodies = reply.progress(index, chunk.progress)
    else:
        bodies = [*(reply.begin(index) if is_first else ()), *reply.chunk(index, chunk)]
    if chunk.step is not None and not bodies:
        bodies = reply.blank(index)
    if chunk.timings is not None and bodies:
        reply.add_timings(bodies[-1], [chunk.timings])
    if chunk.step is not None and bodies:
        reply.add_pass(bodies[-1], index, chunk.step, chunk.tokens)
    return bodies


class EventStream(Response):
    """Streams `events`. The status line goes out at once, since reading a prompt may take longer than clients and
    proxies wait for one; so an error is an event, too. A stream that has been silent for `ping_interval` seconds is
    pinged; -1: never."""

    def __init__(
        self,
        reply: Reply,
        generations: Sequence[Generation],
        n_prompts: int,
        *,
        include_usage: bool,
        ping_interval: float = -1,
    ) -> None:
        super().__init__(headers=STREAM_HEADERS, media_type=reply.MEDIA_TYPE)
        del self.headers["content-length"]
        self._reply, self._generations, self._ping_interval = reply, generations, ping_interval
        self._events = events(reply, generations, n_prompts, include_usage=include_usage)
        self._last_sent = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with cancelled_on_disconnect(receive, self._generations), aclosing(self._events) as stream:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            self._last_sent = time.monotonic()
            async with self._pinged(send):
                try:
                    async for bodies in stream:
                        await self._send(send, self._frames(bodies))
                except Cancelled as error:
                    await self._send(send, self._frames(self._reply.failure(error)))
                except Exception as error:
                    log.error("a stream failed: %s", error, exc_info=not isinstance(error, DFlashError))
                    await self._send(send, self._frames(self._reply.failure(error)))
            await send({"type": "http.response.body", "body": self._reply.TAIL.encode()})

    def _frames(self, bodies: list[Body]) -> str:
        return "".join(self._reply.frame(body) for body in bodies)

    async def _send(self, send: Send, text: str) -> None:
        self._last_sent = time.monotonic()
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        await asyncio.sleep(0)  # lets the loop notice that the client has gone, even with a backlog

    @asynccontextmanager
    async def _pinged(self, send: Send) -> AsyncIterator[None]:
        """Ping while the block runs."""
        if self._ping_interval <= 0:
            yield
            return

        async def ping() -> None:
            while True:
                silent = time.monotonic() - self._last_sent
                if silent >= self._ping_interval:
                    await self._send(send, self._reply.ping())
                else:
                    await asyncio.sleep(self._ping_interval - silent)

        async with beside(ping()):
            yield
