"""The response to a request that generates: sends what its Reply (`server/formats/`) builds, whole or as events."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.generation import Generation
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.request import RequestFields
from dflash_local.server.formats.reply import Reply
from dflash_local.server.streaming import EventStream, cancelled_on_disconnect

LONG = 2048  # tokens of all choices


async def respond(request: Request, fields: RequestFields, reply: Reply, generations: list[Generation]) -> Response:
    """The generations' answer, streamed or whole. They are cancelled if the client disconnects."""
    request.state.generations = generations  # for the log
    n_prompts = len(generations) // fields.n
    if fields.stream:
        return EventStream(
            reply, generations, n_prompts, include_usage=fields.include_usage, ping_interval=fields.ping_interval
        )
    async with cancelled_on_disconnect(request.receive, generations):
        completions = [await generation.completed() for generation in generations]
    is_long = sum(len(done.tokens) for done in completions) > LONG
    if fields.probs.n_top is None and not reply.passes and not is_long:
        return JSON(reply.whole(completions, n_prompts))
    return await asyncio.to_thread(lambda: JSON(reply.whole(completions, n_prompts)))  # much to parse or to write
