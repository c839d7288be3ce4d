"""Ollama's API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.engine import Engine, Generation
from dflash_local.errors import RequestError
from dflash_local.media.media_prompt import text_tokens
from dflash_local.server.connected import while_connected
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.embeddings.embedding_process import Embeddings
from dflash_local.server.encoding import JSON, encode
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.completion import CompletionRequest
from dflash_local.server.fields.generation_fields import GenerationFields
from dflash_local.server.fields.ollama import (
    OllamaChatRequest,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaFields,
    OllamaGenerateRequest,
    OllamaShowRequest,
)
from dflash_local.server.fields.request import RequestFields, parse_fields
from dflash_local.server.formats import ollama_models as models
from dflash_local.server.formats.ollama import Clock, OllamaChatReply, OllamaTextReply, PlainText, empty_part, tag
from dflash_local.server.formats.ollama_models import UNKNOWN, ModelFacts, engine_facts, file_facts
from dflash_local.server.formats.reply_extras import ReplyExtras, extras_of
from dflash_local.server.http_errors import HTTPError, not_supported
from dflash_local.server.infill import Gap
from dflash_local.server.response import respond
from dflash_local.server.routes.embeddings import POOLING_HINT, check_dimensions
from dflash_local.server.routes.endpoint import add_endpoint, wake
from dflash_local.server.service import Service
from dflash_local.server.shapes import ollama as shapes
from dflash_local.server.submission import check_options, start_chat, start_completion

# The version whose API this is: programs ask for a recent one (Copilot: 0.6.4).
VERSION = "0.13.5"

_PULL = "models come from 'dflash-local pull USER/NAME:QUANT' on the server's machine"
_FIXED = "models are files of the server's machine, which no request changes"
ABSENT = {
    "/api/pull": _PULL,
    "/api/push": _FIXED,
    "/api/create": f"{_FIXED}; instructions and options belong into requests, or the server's flags",
    "/api/copy": f"{_FIXED}; --alias gives a model more names",
    "/api/delete": _FIXED,
    "/api/blobs/{digest:path}": _FIXED,
}

F = TypeVar("F", bound=GenerationFields)


class Ollama:
    """The handlers."""

    def __init__(self, service: Service) -> None:
        self._service = service

    # ---- answers ----

    async def chat(self, request: Request, body: OllamaChatRequest) -> Response:
        """A chat in Ollama's format."""
        if not body.messages:
            return await self._without_prompt(request, body)
        clock = await _awake(request)
        self._free_afterwards(body)
        chat, fields = await self._read(body.chat)

        def start() -> tuple[list[Generation], OllamaChatReply]:
            generations, parsers = start_chat(self._service, chat, fields, of=body)
            extras = self._extras(fields, generations)
            return generations, OllamaChatReply(self._answering(body), extras, parsers[0], clock)

        generations, reply = await self._service.media_gate.run(chat.messages, start)
        return await respond(request, fields, reply, generations)

    async def generate(self, request: Request, body: OllamaGenerateRequest) -> Response:
        """The answer to a prompt, or the text in a gap, in Ollama's format."""
        if not body.prompt:
            return await self._without_prompt(request, body)
        clock = await _awake(request)
        self._free_afterwards(body)
        if body.is_plain:
            completion, fields = await self._read(body.completion)
            generations, reply = await asyncio.to_thread(self._start_plain, body, completion, fields, clock)
        else:
            chat, fields = await self._read(body.chat)
            start = partial(self._start_answer, body, chat, fields, clock)
            generations, reply = await self._service.media_gate.run(chat.messages, start)
        return await respond(request, fields, reply, generations)

    def _start_answer(
        self, body: OllamaGenerateRequest, chat: ChatRequest, fields: RequestFields, clock: Clock
    ) -> tuple[list[Generation], OllamaTextReply]:
        """With the chat template."""
        before = _before(self._service.engine, body.context or [])
        generations, parsers = start_chat(self._service, chat, fields, of=body, before=before)
        # Without media rows: they mean nothing once this prompt is gone.
        context = text_tokens(generations[0].request.prompt_tokens)
        extras = self._extras(fields, generations)
        return generations, OllamaTextReply(self._answering(body), extras, parsers[0], clock, context)

    def _start_plain(
        self, body: OllamaGenerateRequest, completion: CompletionRequest, fields: RequestFields, clock: Clock
    ) -> tuple[list[Generation], OllamaTextReply]:
        """Without a chat template."""
        service, engine, prompt = self._service, self._service.engine, body.prompt or ""
        if body.suffix:
            layout = service.infill
            gap = Gap(layout.before(prompt), layout.behind(body.suffix))
            tokens = layout.prompt(gap, fields.options["max_tokens"])
        else:
            context = body.context or []
            _before(engine, context)  # for its refusals
            tokens = engine.tokenize_prompt([*context, prompt])
        generations = start_completion(service, completion, fields, [tokens], of=body)
        extras = self._extras(fields, generations)
        return generations, OllamaTextReply(self._answering(body), extras, PlainText(), clock)

    def _extras(self, fields: RequestFields, generations: list[Generation]) -> ReplyExtras:
        """Without `__verbose`, for which the format has no place, whatever -v says."""
        service = self._service
        return extras_of(service.engine, service.settings.alias, replace(fields, verbose=False), generations)

    async def _without_prompt(self, request: Request, body: OllamaChatRequest | OllamaGenerateRequest) -> Response:
        """Nothing to answer: the model is to be loaded, or to be freed. Nothing else has an effect."""
        sleep = self._service.life.sleep
        clock = _clock(request) if body.unloads and sleep.is_sleeping else await _awake(request)
        convert = body.completion if isinstance(body, OllamaGenerateRequest) and body.is_plain else body.chat
        _, fields = await self._read(convert)  # for its refusals
        await asyncio.to_thread(check_options, self._service, fields)
        body.ignore(_idle(body), strict=self._service.settings.strict_fields)
        if body.unloads and not sleep.soon():
            raise not_supported("the model stays loaded: start the server with --sleep-idle-seconds to let it sleep")
        reason = "unload" if body.unloads else "load"
        part = empty_part(request.url.path, self._answering(body), done=True, done_reason=reason)
        return JSON(part if body.unloads else part | clock.durations())

    async def _read(self, convert: Callable[..., F]) -> tuple[F, RequestFields]:
        """A body in OpenAI's terms, by its method `convert`, and what it asks for. In a thread: it may be long."""
        service = self._service
        body = await asyncio.to_thread(convert, service.engine.n_ctx_slot, strict=service.settings.strict_fields)
        return body, parse_fields(body, service.settings.defaults)

    def _free_afterwards(self, body: OllamaFields) -> None:
        if body.unloads and not self._service.life.sleep.soon():
            body.ignore(["keep_alive"], strict=self._service.settings.strict_fields)

    def _answering(self, body: OllamaFields) -> str:
        settings = self._service.settings
        return _named(body.model, settings.alias, *settings.aliases)

    # ---- embeddings ----

    async def embed(self, request: Request, body: OllamaEmbedRequest) -> Response:
        """Embeddings of texts, in Ollama's format."""
        clock = _clock(request)
        check_dimensions(self._service.embedder.facts, body.dimensions)
        answer = await self._embed(request, body.input, "input") if body.input else Embeddings([], 0)
        name = self._service.embedder.options.name
        head = {"model": _named(body.model, name), **clock.durations(), "prompt_eval_count": answer.n_tokens}
        return _json(encode(head)[:-1] + b',"embeddings":[' + b",".join(answer.parts) + b"]}")

    async def embeddings(self, request: Request, body: OllamaEmbeddingsRequest) -> Response:
        """The embedding of one text, as older programs ask Ollama for it."""
        answer = await self._embed(request, body.prompt, "prompt") if body.prompt else Embeddings([b"[]"], 0)
        return _json(b'{"embedding":' + answer.parts[0] + b"}")

    async def _embed(self, request: Request, texts: Any, param: str) -> Embeddings:
        service = self._service
        if service.embedder.facts["pooling"] == "none":
            raise RequestError(
                "the model gives a vector for each token",
                param=param,
                hint=POOLING_HINT,
            )
        work = service.embedder.embed(texts, normalize=service.settings.embd_normalize, base64=False, param=param)
        return await while_connected(request.receive, work)

    # ---- models ----

    async def version(self, request: Request) -> Response:
        """The version of Ollama whose API this is."""
        return JSON(shapes.OllamaVersion(version=VERSION))

    async def tags(self, request: Request) -> Response:
        """The models that are served."""
        known = await asyncio.to_thread(lambda: [*self._known()])
        return JSON(shapes.OllamaTags(models=[models.listed(name, facts) for name, facts in known]))

    async def show(self, request: Request, body: OllamaShowRequest) -> Response:
        """A model."""
        settings, engine = self._service.settings, self._service.life.engine
        own = {tag(name) for name in (settings.alias, *settings.aliases)}
        wanted = tag(body.model or settings.alias)
        known = await asyncio.to_thread(lambda: [*self._known()])
        for name, facts in known:
            is_text = self._service.has_engine and name == settings.alias
            if wanted == tag(name) or (is_text and wanted in own):
                n_ctx = engine.n_ctx_slot if engine is not None and is_text else None
                return JSON(models.shown(name, facts, settings.defaults, n_ctx))
        names = ", ".join(tag(name) for name, _ in known)
        raise HTTPError(404, f"model {wanted!r:.200} not found; there is {names}", code="model_not_found")

    async def processes(self, request: Request) -> Response:
        """The models that are in memory."""
        found = await asyncio.to_thread(lambda: [*self._loaded()])
        return JSON(shapes.OllamaProcesses(models=found))

    def _known(self) -> Iterator[tuple[str, ModelFacts]]:
        """The names and facts of all models; slow for files that were not read yet."""
        service, settings, engine = self._service, self._service.settings, self._service.life.engine
        if service.has_engine:
            facts = file_facts(settings.model_path) or UNKNOWN
            if engine is not None:
                facts = engine_facts(engine.info, facts)
            yield settings.alias, facts
        for process in service.processes:
            yield process.options.name, file_facts(process.options.path) or UNKNOWN

    def _loaded(self) -> Iterator[shapes.OllamaLoaded]:
        service, now = self._service, time.time()
        known, engine = dict(self._known()), service.life.engine
        if engine is not None and not service.life.sleep.is_sleeping:
            name = service.settings.alias
            placement = engine.info.get("placement", {})
            yield models.loaded(
                name,
                known[name],
                size=sum(sum(parts.values()) for parts in placement.values()),
                size_vram=sum(sum(parts.values()) for device, parts in placement.items() if device != "CPU"),
                n_ctx=engine.n_ctx_slot,
                idle_left=service.life.sleep.idle_left,
                now=now,
            )
        for process in service.processes:
            if process.is_running:
                name, size, n_ctx = process.options.name, process.facts["size"], process.facts["n_ctx"]
                yield models.loaded(name, known[name], size=size, size_vram=0, n_ctx=n_ctx, idle_left=None, now=now)


def add_routes(app: DocumentedApp, service: Service) -> None:
    """Everything that Ollama's clients ask."""
    own = Ollama(service)
    errors: dict[str, Any] = {"responses": {kind: {"model": shapes.OllamaError} for kind in ("4XX", "5XX")}}
    chat, text = shapes.OllamaChat, shapes.OllamaText
    add_endpoint(app, ("/api/chat",), own.chat, answer=chat, event=chat, wakes_late=True, **errors)
    add_endpoint(app, ("/api/generate",), own.generate, answer=text, event=text, wakes_late=True, **errors)
    embedding: dict[str, Any] = {"needs": lambda wanted: wanted.embedder, "wakes": False, **errors}
    add_endpoint(app, ("/api/embed",), own.embed, answer=shapes.OllamaEmbeddings, **embedding)
    add_endpoint(app, ("/api/embeddings",), own.embeddings, answer=shapes.OllamaEmbedding, **embedding)
    facts: dict[str, Any] = {"needs": None, "wakes": False, **errors}
    add_endpoint(app, ("/api/show",), own.show, answer=shapes.OllamaModel, **facts)
    for path, handler, answer in (
        ("/api/version", own.version, shapes.OllamaVersion),
        ("/api/tags", own.tags, shapes.OllamaTags),
        ("/api/ps", own.processes, shapes.OllamaProcesses),
    ):
        add_endpoint(app, (path,), handler, answer=answer, methods=["GET"], **facts)


def _named(asked: str | None, *names: str) -> str:
    """A model's name: as the client wrote it, if that is one of `names`, and otherwise the first of them."""
    return asked if asked and tag(asked) in map(tag, names) else tag(names[0])


def _idle(body: OllamaFields) -> list[str]:
    """The fields that mean nothing without a prompt. Empty ones, which Go's programs always send, ask for nothing."""
    used = ("model", "stream", "keep_alive", "prompt", "messages")
    return [
        name
        for name, value in body.given().items()
        if name not in used and value is not False and value not in ("", [], {})
    ]


async def _awake(request: Request) -> Clock:
    """The times of a request, whose model is awake from now on."""
    await wake(request)
    return _clock(request)


def _clock(request: Request) -> Clock:
    return Clock(getattr(request.state, "began", time.monotonic()))


def _before(engine: Engine, context: list[int]) -> str:
    """The text of an earlier answer's tokens, without the BOS that every prompt gets.

    Raises:
        RequestError: these are not its tokens.
    """
    has_bos = bool(engine.info.get("add_bos")) and context[:1] == [engine.info["bos_token"]]
    try:
        return engine.detokenize(context[has_bos:], special=True)
    except RequestError as error:
        raise error.at("context") from None


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
