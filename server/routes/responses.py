"""OpenAI's responses."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.errors import ContextLengthError
from dflash_local.generation import Generation
from dflash_local.server.chat_prompt import count_tokens
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.request import parse_fields
from dflash_local.server.fields.responses import ResponsesRequest
from dflash_local.server.formats.responses import ResponsesReply, echo
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.response import respond
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.shapes.responses import InputTokens, ResponseAnswer, ResponseEvent
from dflash_local.server.submission import start_chat


def add_routes(app: DocumentedApp, service: Service) -> None:
    """A response, and how many tokens it would read. Nothing is stored, so none can be fetched."""
    settings = service.settings

    async def responses(request: Request, body: ResponsesRequest) -> Response:
        """A response in OpenAI's newer format; nothing is stored."""
        chat = await asyncio.to_thread(body.chat, strict=settings.strict_fields)
        fields = parse_fields(chat, settings.defaults)
        make_reply = partial(ResponsesReply, settings.alias, echo=echo(body, fields), names=body.names)

        def start() -> tuple[list[Generation], ResponsesReply]:
            generations, parsers = start_chat(service, chat, fields, of=body)
            count = partial(service.engine.tokens_through, generation=generations[0])
            return generations, make_reply(parsers[0], count=count)

        try:
            generations, reply = await service.media_gate.run(chat.messages, start)
        except ContextLengthError as error:
            if not body.stream:
                raise
            # Codex shortens its conversation if a stream says so, and gives up on a 400; OpenAI's streams do the same.
            reply = make_reply(None, count=lambda _text, _completion: 0)
            events = "".join(reply.frame(event) for event in reply.failure(error))
            return Response(events, media_type="text/event-stream")
        return await respond(request, fields, reply, generations)

    async def input_tokens(request: Request, body: ResponsesRequest) -> Response:
        """How many tokens a response would read; nothing is generated."""
        chat = await asyncio.to_thread(body.chat, strict=settings.strict_fields)
        return _counted(await count_tokens(service, chat, of=body))

    async def chat_input_tokens(request: Request, body: ChatRequest) -> Response:
        """How many tokens a chat completion would read; nothing is generated."""
        return _counted(await count_tokens(service, body))

    for root in ("/v1/responses", "/responses"):
        add_endpoint(app, (root,), responses, answer=ResponseAnswer, event=ResponseEvent)
        add_endpoint(app, (f"{root}/input_tokens",), input_tokens, answer=InputTokens)
        _add_refusals(app, root)
    paths = ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens")
    add_endpoint(app, paths, chat_input_tokens, answer=InputTokens)


def _add_refusals(app: DocumentedApp, root: str) -> None:
    """What OpenAI can do because it stores responses."""

    async def stored(request: Request) -> Response:
        """Responses are not stored."""
        raise HTTPError(404, f"{request.path_params['response_id']:.80}: responses are not stored here")

    async def compact(_request: Request) -> Response:
        """Conversations are not compacted here."""
        raise HTTPError(404, "conversations are not compacted here: ask for a summary")

    for path, handler, methods in (
        (f"{root}/compact", compact, ["POST"]),
        (f"{root}/{{response_id}}", stored, ["GET", "DELETE"]),
        (f"{root}/{{response_id}}/input_items", stored, ["GET"]),
        (f"{root}/{{response_id}}/cancel", stored, ["POST"]),
    ):
        app.add_route(path, handler, methods=methods, include_in_schema=False)


def _counted(n_tokens: int) -> Response:
    return JSON(InputTokens(object="response.input_tokens", input_tokens=n_tokens))
