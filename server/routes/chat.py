"""Chat completions."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.generation import Generation
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.request import RequestFields, parse_fields
from dflash_local.server.formats.chat import ChatReply
from dflash_local.server.formats.reply_extras import extras_of
from dflash_local.server.response import respond
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.shapes.chat import ChatCompletion, ChatCompletionChunk
from dflash_local.server.submission import start_chat


def add_routes(app: DocumentedApp, service: Service) -> None:
    """OpenAI's chat."""

    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """OpenAI's chat completion."""
        fields = parse_fields(body, service.settings.defaults)
        generations, reply = await service.media_gate.run(body.messages, lambda: _start(service, body, fields))
        service.chats.add(reply.id, generations)
        return await respond(request, fields, reply, generations)

    paths = ("/v1/chat/completions", "/chat/completions")
    add_endpoint(app, paths, chat_completions, answer=ChatCompletion, event=ChatCompletionChunk)


def _start(service: Service, body: ChatRequest, fields: RequestFields) -> tuple[list[Generation], ChatReply]:
    engine, model = service.engine, service.settings.alias
    generations, parsers = start_chat(service, body, fields)
    counts = [partial(engine.tokens_through, generation=generation) for generation in generations]
    return generations, ChatReply(model, extras_of(engine, model, fields, generations), parsers, counts)
