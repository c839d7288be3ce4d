"""Chat completions."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.responses import Response

from dflash_local.server.fields.body import read_json
from dflash_local.server.formats.chat import ChatReply
from dflash_local.server.generation import respond, start_chat
from dflash_local.server.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """OpenAI's chat."""
    settings = service.settings

    async def chat_completions(request: Request) -> Response:
        _ = service.engine  # while it loads, that is the answer, whatever the body says
        fields, generations, answers = await start_chat(service, await read_json(request, settings.max_body))
        return await respond(request, fields, ChatReply(fields.model or settings.alias, answers), generations, 1)

    for path in ("/v1/chat/completions", "/chat/completions"):
        app.add_api_route(path, chat_completions, methods=["POST"])
