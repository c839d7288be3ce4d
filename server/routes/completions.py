"""Completions of text and tokens: OpenAI's and llama-server's own."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from starlette.responses import Response

from dflash_local.engine import Generation
from dflash_local.errors import RequestError
from dflash_local.server.answers.native import NativeAnswer, NativeEvent
from dflash_local.server.answers.text import TextCompletion, TextCompletionChunk
from dflash_local.server.fields.completion import CompletionFields, CompletionRequest, NativeRequest
from dflash_local.server.fields.prompt import Prompt, parse_prompts
from dflash_local.server.fields.request import RequestFields, parse_fields
from dflash_local.server.formats.details import details_of
from dflash_local.server.formats.native import native_reply
from dflash_local.server.formats.passes import choice_passes
from dflash_local.server.formats.probs import choice_probs
from dflash_local.server.formats.reply import Reply
from dflash_local.server.formats.text import Echoed, TextReply
from dflash_local.server.infill import Gap
from dflash_local.server.response import respond
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.submission import start_completion

MakeReply = Callable[[RequestFields, list[Prompt], list[Generation]], Reply]


def add_routes(app: FastAPI, service: Service) -> None:
    """The two formats of one endpoint."""
    settings = service.settings

    async def completions(request: Request, body: CompletionRequest) -> Response:
        """OpenAI's completion."""
        if body.echo and body.suffix:
            raise RequestError("echo: a prompt with a suffix is not repeated", param="echo")

        def make_reply(fields: RequestFields, prompts: list[Prompt], generations: list[Generation]) -> Reply:
            engine, echoed = service.engine, []
            if fields.probs.echo:
                asked = [prompt for prompt in prompts for _ in range(fields.n)]
                tokens = [generation.request.prompt_tokens for generation in generations]
                echoed = [
                    Echoed(ids, prompt if isinstance(prompt, str) else engine.detokenize(ids, special=True))
                    for prompt, ids in zip(asked, tokens, strict=True)
                ]
            return TextReply(
                settings.alias,
                echoed,
                choice_probs(engine, fields.probs, generations),
                choice_passes(engine, generations),
                details_of(engine, settings.alias, fields, generations).whole if fields.verbose else None,
            )

        return await _complete(service, request, body, make_reply, body.suffix)

    async def completion(request: Request, body: NativeRequest) -> Response:
        """llama-server's own completion."""

        def make_reply(fields: RequestFields, _prompts: list[Prompt], generations: list[Generation]) -> Reply:
            return native_reply(service.engine, settings.alias, body, fields, generations)

        return await _complete(service, request, body, make_reply)

    add_endpoint(app, ("/v1/completions",), completions, answer=TextCompletion, event=TextCompletionChunk)
    add_endpoint(app, ("/completion", "/completions"), completion, answer=NativeAnswer, event=NativeEvent)


async def _complete(
    service: Service, request: Request, body: CompletionFields, make_reply: MakeReply, suffix: str | None = None
) -> Response:
    engine, fields, prompts = service.engine, parse_fields(body, service.settings.defaults), parse_prompts(body.prompt)

    def to_tokens(prompt: Prompt) -> list[int]:
        if not suffix:
            return engine.tokenize_prompt(prompt)
        layout = service.infill
        prefix = layout.tokens(prompt) if isinstance(prompt, str) else engine.tokenize_parts(prompt)
        return layout.prompt(Gap(prefix, layout.tokens(suffix)), fields.options["max_tokens"])

    generations, reply = await start_completion(
        service,
        body,
        fields,
        lambda: [to_tokens(prompt) for prompt in prompts],
        lambda generations: make_reply(fields, prompts, generations),
    )
    return await respond(request, fields, reply, generations)
