"""Completions of text and tokens: OpenAI's and llama-server's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from dflash_local.engine import Generation
from dflash_local.server.fields.body import read_json
from dflash_local.server.fields.request import parse_fields, parse_prompts
from dflash_local.server.formats.native import NativeReply
from dflash_local.server.formats.reply import Reply
from dflash_local.server.formats.text import TextReply
from dflash_local.server.generation import respond, submit_all
from dflash_local.server.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """The two formats of one endpoint."""
    settings = service.settings

    def completions(reply_type: type[Reply]) -> Callable[[Request], Any]:
        async def handler(request: Request) -> Response:
            engine = service.engine
            body = await read_json(request, settings.max_body)
            fields, prompts = parse_fields(body, settings.defaults), parse_prompts(body)

            def start() -> list[Generation]:
                tokens = [engine.tokenize(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
                return submit_all(
                    fields,
                    len(tokens),
                    lambda index, sampling: engine.submit(tokens[index], sampling, **fields.options),
                )

            generations = await asyncio.to_thread(start)
            return await respond(request, fields, reply_type(fields.model or settings.alias), generations, len(prompts))

        return handler

    app.add_api_route("/v1/completions", completions(TextReply), methods=["POST"])
    for path in ("/completion", "/completions"):  # llama-server's own format
        app.add_api_route(path, completions(NativeReply), methods=["POST"])
