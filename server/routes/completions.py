"""Completions of text and tokens: OpenAI's and llama-server's own."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request
from starlette.responses import Response

from dflash_local.engine import Engine, Generation
from dflash_local.errors import RequestError
from dflash_local.server.answers.native import NativeCompletion, NativeCompletions, NativeEvent
from dflash_local.server.answers.text import TextCompletion, TextCompletionChunk
from dflash_local.server.fields.completion import CompletionFields, CompletionRequest, NativeRequest
from dflash_local.server.fields.request import parse_fields, parse_prompts
from dflash_local.server.formats.native import NativeReply
from dflash_local.server.formats.probs import choice_probs
from dflash_local.server.formats.reply import Reply
from dflash_local.server.formats.text import Prompt, TextReply
from dflash_local.server.generation import ignored_parts, respond, submit_all, submit_options
from dflash_local.server.infill import Gap
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """The two formats of one endpoint."""
    settings = service.settings

    async def complete(
        request: Request, body: CompletionFields, *, native: bool, suffix: str | None = None
    ) -> Response:
        engine = service.engine
        fields, prompts = parse_fields(body, settings.defaults), parse_prompts(body)

        def to_tokens(prompt: str | list[int]) -> list[int]:
            if not suffix:
                return engine.tokenize(prompt) if isinstance(prompt, str) else prompt
            layout = service.infill
            prefix = layout.tokens(prompt) if isinstance(prompt, str) else prompt
            return layout.prompt(Gap(prefix, layout.tokens(suffix)), fields.options["max_tokens"])

        def start() -> tuple[list[Generation], Reply]:
            body.ignore(ignored_parts(body, fields), strict=settings.strict_fields)
            tokens = [to_tokens(prompt) for prompt in prompts]
            options = submit_options(engine, fields)
            generations = submit_all(
                engine, fields, len(tokens), lambda index, sampling: engine.submit(tokens[index], sampling, **options)
            )
            probs = choice_probs(engine, fields.probs, generations)
            if native:
                return generations, NativeReply(settings.alias, probs)
            texts = [_text_of(engine, prompt) for prompt in prompts] if fields.probs.echo else []
            echoed = [Prompt(ids, text) for ids, text in zip(tokens, texts, strict=False) for _ in range(fields.n)]
            return generations, TextReply(settings.alias, probs, echoed)

        generations, reply = await asyncio.to_thread(start)
        return await respond(request, fields, reply, generations, len(prompts))

    async def completions(request: Request, body: CompletionRequest) -> Response:
        """OpenAI's completion."""
        if body.echo and body.suffix:
            raise RequestError("echo: a prompt with a suffix is not repeated", param="echo")
        return await complete(request, body, native=False, suffix=body.suffix)

    async def completion(request: Request, body: NativeRequest) -> Response:
        """llama-server's own completion."""
        return await complete(request, body, native=True)

    add_endpoint(app, ("/v1/completions",), completions, answer=TextCompletion, event=TextCompletionChunk)
    add_endpoint(
        app,
        ("/completion", "/completions"),
        completion,
        answer=NativeCompletion | NativeCompletions,
        event=NativeEvent,
    )


def _text_of(engine: Engine, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else engine.detokenize(prompt, special=True)
