"""Anthropic's messages."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.generation import Generation
from dflash_local.request_options import stop_strings
from dflash_local.server.chat_prompt import count_tokens
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.messages import MessagesRequest
from dflash_local.server.fields.request import parse_fields
from dflash_local.server.formats.messages import MessagesReply
from dflash_local.server.http_errors import MESSAGES
from dflash_local.server.response import respond
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.shapes.messages import Message, MessageError, MessageEvent, MessageTokens
from dflash_local.server.submission import start_chat


def add_routes(app: DocumentedApp, service: Service) -> None:
    """A message, and how many tokens it would read."""
    settings = service.settings

    async def messages(request: Request, body: MessagesRequest) -> Response:
        """A message in Anthropic's format."""
        chat = await asyncio.to_thread(body.chat, strict=settings.strict_fields)
        fields = parse_fields(chat, settings.defaults)

        def start() -> tuple[list[Generation], MessagesReply]:
            generations, parsers = start_chat(service, chat, fields, of=body)
            return generations, MessagesReply(
                settings.alias,
                parsers[0],
                n_prompt=generations[0].request.n_prompt,
                stops=stop_strings(chat.given().get("stop", ())),
                count=partial(service.engine.tokens_through, generation=generations[0]),
                hide_thoughts=body.hides_thoughts,
            )

        generations, reply = await service.media_gate.run(chat.messages, start)
        return await respond(request, fields, reply, generations)

    async def count_message_tokens(request: Request, body: MessagesRequest) -> Response:
        """How many tokens a message would read; nothing is generated."""
        chat = await asyncio.to_thread(body.chat, strict=settings.strict_fields)
        return JSON(MessageTokens(input_tokens=await count_tokens(service, chat, of=body)))

    errors = {kind: {"model": MessageError} for kind in ("4XX", "5XX")}
    add_endpoint(app, (MESSAGES,), messages, answer=Message, event=MessageEvent, responses=errors)
    count = f"{MESSAGES}/count_tokens"
    add_endpoint(app, (count,), count_message_tokens, answer=MessageTokens, responses=errors)
