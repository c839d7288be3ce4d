"""Text without generation: tokens and templates."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, Request
from starlette.responses import Response

from dflash_local.errors import RequestError
from dflash_local.server.errors import JSON
from dflash_local.server.fields.body import read_json
from dflash_local.server.fields.request import parse_chat
from dflash_local.server.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """Text to tokens and back, and the chat template."""
    limit = service.settings.max_body

    async def tokenize(request: Request) -> Response:
        body = await read_json(request, limit)
        text = body.get("content", "")
        if not isinstance(text, str):
            raise RequestError("content must be a string", param="content")
        special, parse = bool(body.get("add_special", False)), bool(body.get("parse_special", True))
        engine = service.engine
        tokens = await asyncio.to_thread(engine.tokenize, text, add_special=special, parse_special=parse)
        if body.get("with_pieces"):
            return JSON(
                {"tokens": [{"id": token, "piece": engine.detokenize([token], special=True)} for token in tokens]}
            )
        return JSON({"tokens": tokens})

    async def detokenize(request: Request) -> Response:
        body = await read_json(request, limit)
        tokens = body.get("tokens", [])
        if not isinstance(tokens, list):
            raise RequestError("tokens must be a list of token ids", param="tokens")
        return JSON({"content": service.engine.detokenize(tokens, special=True)})

    async def apply_template(request: Request) -> Response:
        body = await read_json(request, limit)
        chat = parse_chat(body, service.settings.defaults)
        return JSON({"prompt": (await asyncio.to_thread(service.engine.apply_chat, chat)).prompt})

    for path, handler in (("/tokenize", tokenize), ("/detokenize", detokenize), ("/apply-template", apply_template)):
        app.add_api_route(path, handler, methods=["POST"])
