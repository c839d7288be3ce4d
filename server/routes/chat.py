"""Chat completions."""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import FastAPI, Request
from starlette.responses import Response

from dflash_local.server.answers.chat import ChatCompletion, ChatCompletionChunk
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.formats.chat import ChatReply
from dflash_local.server.formats.details import details_of
from dflash_local.server.formats.passes import choice_passes
from dflash_local.server.formats.probs import choice_probs
from dflash_local.server.response import respond
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.submission import start_chat


def add_routes(app: FastAPI, service: Service) -> None:
    """OpenAI's chat."""
    settings = service.settings

    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """OpenAI's chat completion."""
        fields, generations, answers = await start_chat(service, body)
        engine = service.engine
        probs = choice_probs(engine, fields.probs, generations)
        counts = [partial(engine.tokens_through, generation=generation) for generation in generations]
        reply = ChatReply(settings.alias, answers, counts, probs)
        reply.passes = choice_passes(engine, generations)
        service.chats.add(reply.id, generations)
        if fields.verbose:
            details = await asyncio.to_thread(details_of, engine, settings.alias, fields, generations)
            reply.verbose = details.whole
        return await respond(request, fields, reply, generations)

    paths = ("/v1/chat/completions", "/chat/completions")
    add_endpoint(app, paths, chat_completions, answer=ChatCompletion, event=ChatCompletionChunk)
