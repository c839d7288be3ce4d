"""Text in a gap: llama-server's infill."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.engine import Engine, Generation
from dflash_local.server.continuation import continuation
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.fields.infill import InfillRequest
from dflash_local.server.fields.request import RequestFields, parse_fields
from dflash_local.server.formats.native import NativeReply, native_reply
from dflash_local.server.infill import FimTokens, Gap
from dflash_local.server.response import respond
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.shapes.native import NativeAnswer, NativeEvent
from dflash_local.server.submission import start_completion


def fim_tokens(service: Service) -> object:
    """An engine whose model has tokens for it."""
    return FimTokens.of(service.engine.info)


def with_continuation(engine: Engine, body: InfillRequest, fields: RequestFields) -> RequestFields:
    """Predict what elsewhere followed the text before the gap, unless there is a prediction or lookup is off."""
    lookup = fields.options["lookup"]
    if lookup is None:
        lookup = engine.options is None or engine.options.lookup
    if fields.prediction or not lookup:
        return fields
    before = body.input_prefix + (body.prompt or "")
    return replace(fields, prediction=continuation(before, [*(text for _, text in body.files), body.input_suffix]))


def add_routes(app: DocumentedApp, service: Service) -> None:
    settings = service.settings

    async def infill(request: Request, body: InfillRequest) -> Response:
        """The text between a prefix and a suffix, by a model that was trained for that."""
        engine = service.engine
        fields = await asyncio.to_thread(with_continuation, engine, body, parse_fields(body, settings.defaults))

        def start() -> tuple[list[Generation], NativeReply]:
            layout = service.infill
            begun = engine.tokenize_prompt(body.prompt or "", add_special=False)
            gap = Gap(layout.before(body.input_prefix), layout.behind(body.input_suffix), begun, body.files)
            tokens = [layout.prompt(gap, fields.options["max_tokens"])]
            generations = start_completion(service, body, fields, tokens)
            return generations, native_reply(engine, settings.alias, body, fields, generations)

        generations, reply = await asyncio.to_thread(start)
        return await respond(request, fields, reply, generations)

    add_endpoint(app, ("/infill",), infill, answer=NativeAnswer, event=NativeEvent, needs=fim_tokens)
