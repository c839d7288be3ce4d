"""From checked fields to generations, and from these to a response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import Request
from starlette.responses import Response

from dflash_local.conversation import ChatAnswer, ChatPrompt
from dflash_local.engine import Engine, Generation
from dflash_local.errors import RequestError
from dflash_local.sampling import SamplingParams
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.completion import NativeFields
from dflash_local.server.fields.fields import Fields
from dflash_local.server.fields.generation_fields import MAX_CHOICES, GenerationFields, VerboseFields
from dflash_local.server.fields.request import RequestFields, parse_chat, parse_fields
from dflash_local.server.formats.details import Details
from dflash_local.server.formats.native import NativeReply
from dflash_local.server.formats.passes import choice_passes
from dflash_local.server.formats.probs import choice_probs
from dflash_local.server.formats.reply import Reply
from dflash_local.server.formats.settings import generation_settings
from dflash_local.server.http_errors import JSON
from dflash_local.server.security.api_keys import key_number
from dflash_local.server.service import Service
from dflash_local.server.streaming import EventStream, cancelled_on_disconnect


async def respond(
    request: Request, fields: RequestFields, reply: Reply, generations: list[Generation], n_prompts: int
) -> Response:
    """The generations' answer, streamed or whole. They are cancelled if the client disconnects."""
    request.state.generations = generations  # for the log
    if fields.stream:
        return EventStream(
            reply,
            generations,
            n_prompts,
            include_usage=fields.include_usage,
            ping_interval=fields.ping_interval,
        )
    async with cancelled_on_disconnect(request.receive, generations):
        completions = [await generation.completed() for generation in generations]
    if fields.probs.n_top is None and not reply.passes:
        return JSON(reply.whole(completions, n_prompts))
    return await asyncio.to_thread(lambda: JSON(reply.whole(completions, n_prompts)))  # much to write


async def start_chat(
    service: Service, body: ChatRequest, *, of: Fields | None = None
) -> tuple[RequestFields, list[Generation], list[ChatAnswer]]:
    """Queue all choices of a chat completion, with a parser for each. If another format (`of`) was turned into it,
    fields without effect go into the `ignored` of that body, else of its own.

    This runs in a thread, because templates, grammars and long prompts take time.
    """
    engine = service.engine
    fields = parse_fields(body, service.settings.defaults)

    def start() -> tuple[RequestFields, list[Generation], list[ChatAnswer]]:
        prompt, options = _apply(service, body, of or body), submit_options(engine, fields)
        generations = submit_all(engine, fields, 1, lambda _, sampling: engine.submit_chat(prompt, sampling, **options))
        return fields, generations, [engine.answer(prompt) for _ in generations]

    return await asyncio.to_thread(start)


def wants_details(service: Service, body: VerboseFields) -> bool:
    """Whether an answer in another format carries the details of llama-server's own."""
    return service.settings.defaults.verbose if body.verbose is None else body.verbose


def describe(
    engine: Engine,
    model: str,
    fields: RequestFields,
    generations: list[Generation],
    n_prompts: int,
    *,
    tokens: bool = False,
) -> Details:
    """The details of running generations in llama-server's own format; slow for long prompts."""
    prompts = [generation.request.prompt_tokens for generation in generations[:: len(generations) // n_prompts]]
    texts = [engine.detokenize(prompt, special=True) for prompt in prompts]
    return Details(model, generation_settings(engine, fields), texts, generations, tokens=tokens)


def native_reply(
    service: Service, body: NativeFields, fields: RequestFields, generations: list[Generation], n_prompts: int
) -> NativeReply:
    """An answer in llama-server's own format; slow for long prompts."""
    engine, model = service.engine, service.settings.alias
    details = describe(engine, model, fields, generations, n_prompts, tokens=bool(body.return_tokens))
    reply = NativeReply(model, details, body.response_fields or (), choice_probs(engine, fields.probs, generations))
    reply.passes = choice_passes(engine, generations)
    return reply


def ignored_parts(body: GenerationFields, fields: RequestFields) -> list[str]:
    """The parts of a schema that came with the body and that its grammar cannot enforce."""
    return body.sent_parts(Engine.ignored(fields.sampling))


async def apply_chat(service: Service, body: ChatRequest, *, of: Fields | None = None) -> ChatPrompt:
    """A chat completion's prompt. Fields without effect go into the `ignored` of `of`, if given, else of `body`."""
    return await asyncio.to_thread(_apply, service, body, of or body)


def _apply(service: Service, body: ChatRequest, owner: Fields) -> ChatPrompt:
    prompt = service.engine.apply_chat(parse_chat(body, service.settings.defaults))
    owner.ignore(body.sent_parts(prompt.ignored), strict=service.settings.strict_fields)
    return prompt


async def count_tokens(service: Service, body: ChatRequest, *, of: Fields | None = None) -> int:
    """Tokens of a chat completion's prompt."""
    prompt = await apply_chat(service, body, of=of)
    return len(await asyncio.to_thread(service.engine.tokenize, prompt.prompt))


def submit_options(engine: Engine, fields: RequestFields) -> dict[str, Any]:
    """The arguments of Engine.submit."""
    options = fields.options | {"lookup_owner": key_number.get()}
    if not fields.prediction:
        return options
    # Plain text, as the answer is: a control token would end it.
    tokens = engine.tokenize(fields.prediction, add_special=False, parse_special=False)
    return options | {"prediction": tokens}


def submit_all(
    engine: Engine, fields: RequestFields, n_prompts: int, submit: Callable[[int, SamplingParams], Generation]
) -> list[Generation]:
    """All choices of all prompts, or none. Each choice has a seed of its own."""
    most = min(MAX_CHOICES, engine.n_most)
    if fields.n * n_prompts > most:
        raise RequestError(
            f"n times the number of prompts must be at most {most}, got {fields.n * n_prompts}",
            param="n" if n_prompts == 1 or fields.n > 1 else "prompt",
            hint=None if most == MAX_CHOICES else "ask several times, or start the server with a larger --max-queue",
        )
    seed = fields.sampling.seed
    samplings = [
        fields.sampling if seed in (None, -1) else replace(fields.sampling, seed=seed + choice)
        for choice in range(fields.n)
    ]
    generations: list[Generation] = []
    try:
        for prompt in range(n_prompts):
            for sampling in samplings:
                generations.append(submit(prompt, sampling))
    except BaseException:
        for generation in generations:
            generation.cancel()
        raise
    return generations
