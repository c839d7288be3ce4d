"""Completions of text and tokens: OpenAI's and llama-server's own."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request
from starlette.responses import Response

from dflash_local.engine import Generation
from dflash_local.server.answers.native import NativeCompletion, NativeCompletions, NativeEvent
from dflash_local.server.answers.text import TextCompletion, TextCompletionChunk
from dflash_local.server.fields.completion import CompletionFields, CompletionRequest, NativeRequest
from dflash_local.server.fields.request import parse_fields, parse_prompts
from dflash_local.server.formats.native import NativeReply
from dflash_local.server.formats.reply import Reply
from dflash_local.server.formats.text import TextReply
from dflash_local.server.generation import respond, submit_all
from dflash_local.server.infill import Gap
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """The two formats of one endpoint."""
    settings = service.settings

    async def complete(
        request: Request, body: CompletionFields, reply_type: type[Reply], suffix: str | None = None
    ) -> Response:
        engine = service.engine
        fields, prompts = parse_fields(body, settings.defaults), parse_prompts(body)

        def to_tokens(prompt: str | list[int]) -> list[int]:
            if not suffix:
                return engine.tokenize(prompt) if isinstance(prompt, str) else prompt
            layout = service.infill
            prefix = layout.tokens(prompt) if isinstance(prompt, str) else prompt
            return layout.prompt(Gap(prefix, layout.tokens(suffix)), fields.options["max_tokens"])

        def start() -> list[Generation]:
            tokens = [to_tokens(prompt) for prompt in prompts]
            return submit_all(
                engine,
                fields,
                len(tokens),
                lambda index, sampling: engine.submit(tokens[index], sampling, **fields.options),
            )

        generations = await asyncio.to_thread(start)
        return await respond(request, fields, reply_type(settings.alias), generations, len(prompts))

    async def completions(request: Request, body: CompletionRequest) -> Response:
        """OpenAI's completion."""
        return await complete(request, body, TextReply, body.suffix)

    async def completion(request: Request, body: NativeRequest) -> Response:
        """llama-server's own completion."""
        return await complete(request, body, NativeReply)

    add_endpoint(app, ("/v1/completions",), completions, answer=TextCompletion, event=TextCompletionChunk)
    add_endpoint(
        app,
        ("/completion", "/completions"),
        completion,
        answer=NativeCompletion | NativeCompletions,
        event=NativeEvent,
    )
