"""Completions of text and tokens: OpenAI's and llama-server's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.engine import Engine, Generation
from dflash_local.errors import RequestError
from dflash_local.media.media_list import blamed, media_of
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.fields.completion import CompletionRequest, NativeRequest
from dflash_local.server.fields.prompt import MarkedText, Prompt, parse_prompts
from dflash_local.server.fields.request import RequestFields, parse_fields
from dflash_local.server.formats.native import NativeReply, native_reply
from dflash_local.server.formats.reply_extras import extras_of
from dflash_local.server.formats.text import Echoed, TextReply
from dflash_local.server.infill import Gap
from dflash_local.server.response import respond
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.shapes.native import NativeAnswer, NativeEvent
from dflash_local.server.shapes.text import TextCompletion, TextCompletionChunk
from dflash_local.server.submission import start_completion

T = TypeVar("T")
_FILES = "prompt.multimodal_data"


def add_routes(app: DocumentedApp, service: Service) -> None:
    """The two formats of one endpoint."""
    settings = service.settings

    async def completions(request: Request, body: CompletionRequest) -> Response:
        """OpenAI's completion."""
        if body.echo and body.suffix:
            raise RequestError("echo: a prompt with a suffix is not repeated", param="echo")
        fields, prompts = parse_fields(body, settings.defaults), parse_prompts(body.prompt)
        for name in ("echo", "suffix"):
            if getattr(body, name) and _has_media(prompts):
                raise RequestError(f"{name}: not for a prompt with images or audio", param=name)

        def start() -> tuple[list[Generation], TextReply]:
            engine, model = service.engine, settings.alias
            tokens = [_tokens(service, prompt, body.suffix, fields) for prompt in prompts]
            generations = start_completion(service, body, fields, tokens)
            echoed = _echoed(engine, fields, prompts, generations) if fields.probs.echo else []
            return generations, TextReply(model, extras_of(engine, model, fields, generations), echoed)

        generations, reply = await _run(service, prompts, start)
        return await respond(request, fields, reply, generations)

    async def completion(request: Request, body: NativeRequest) -> Response:
        """llama-server's own completion."""
        fields, prompts = parse_fields(body, settings.defaults), parse_prompts(body.prompt)

        def start() -> tuple[list[Generation], NativeReply]:
            tokens = [_prompt_tokens(service, prompt) for prompt in prompts]
            generations = start_completion(service, body, fields, tokens)
            return generations, native_reply(service.engine, settings.alias, body, fields, generations)

        generations, reply = await _run(service, prompts, start)
        return await respond(request, fields, reply, generations)

    add_endpoint(app, ("/v1/completions",), completions, answer=TextCompletion, event=TextCompletionChunk)
    add_endpoint(app, ("/completion", "/completions"), completion, answer=NativeAnswer, event=NativeEvent)


def _has_media(prompts: list[Prompt]) -> bool:
    return any(isinstance(prompt, MarkedText) for prompt in prompts)


async def _run(service: Service, prompts: list[Prompt], start: Callable[[], T]) -> T:
    """`start` in a worker thread."""
    run = service.media_gate.run_with_media if _has_media(prompts) else asyncio.to_thread
    return await run(start)


def _prompt_tokens(service: Service, prompt: Prompt) -> Sequence[int]:
    engine = service.engine
    if not isinstance(prompt, MarkedText):
        return engine.tokenize_prompt(prompt)
    media, text = media_of(prompt.files, engine.abilities, _FILES), prompt.text
    if marker := service.settings.media_marker:
        text = text.replace(marker, engine.abilities.marker)
    try:
        return engine.tokenize_prompt(text, media)
    except RequestError as error:
        raise blamed(error, media, [f"{_FILES}[{index}]" for index in range(len(media))]) from None


def _tokens(service: Service, prompt: Prompt, suffix: str | None, fields: RequestFields) -> Sequence[int]:
    if not suffix or isinstance(prompt, MarkedText):
        return _prompt_tokens(service, prompt)
    layout = service.infill
    prefix = layout.before(prompt) if isinstance(prompt, str) else service.engine.tokenize_parts(prompt)
    return layout.prompt(Gap(prefix, layout.behind(suffix)), fields.options["max_tokens"])


def _echoed(
    engine: Engine, fields: RequestFields, prompts: list[Prompt], generations: list[Generation]
) -> list[Echoed]:
    asked = [prompt for prompt in prompts for _ in range(fields.n)]
    tokens = [generation.request.prompt_tokens for generation in generations]
    return [
        Echoed(ids, prompt if isinstance(prompt, str) else engine.detokenize(ids, special=True))
        for prompt, ids in zip(asked, tokens, strict=True)
    ]
