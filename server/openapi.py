"""The OpenAPI document of the app, and pages that show it."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from starlette.requests import Request
from starlette.responses import Response

from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.fields import IGNORED, built
from dflash_local.server.formats.events import EVENTS, NDJSON
from dflash_local.server.http_errors import OLLAMA
from dflash_local.server.routes.endpoint import Endpoint

REF = "#/components/schemas/{model}"


def add_openapi(app: DocumentedApp) -> None:
    """Serve the app's document at /openapi.json. It is made on the first request, in a thread: streams would wait for
    the half second that it takes."""

    async def openapi(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        servers = {"servers": [{"url": root}]} if root else {}
        return await asyncio.to_thread(lambda: JSON({**app.document, **servers}))

    app.add_route("/openapi.json", openapi, include_in_schema=False)


def openapi_document(app: DocumentedApp) -> dict[str, Any]:
    """FastAPI's document, with what it cannot know: events of streams and the header of ignored fields."""
    from fastapi.openapi.utils import get_openapi

    endpoints = [route for route in app.routes if isinstance(route, Endpoint)]
    for reads in (route.reads for route in endpoints if route.reads is not None):
        built(reads)  # FastAPI would build it beside a first body
    document = get_openapi(
        title=app.title,
        version=app.version,
        routes=[route.documented() if isinstance(route, Endpoint) else route for route in app.routes],
        separate_input_output_schemas=False,
    )
    events: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (route.path, "validation", TypeAdapter(route.event)) for route in endpoints if route.event is not None
    ]
    references, definitions = TypeAdapter.json_schemas(events, ref_template=REF)
    document["components"]["schemas"] |= definitions.get("$defs", {})
    for route in (route for route in endpoints if route.include_in_schema):
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            answer = operation["responses"].setdefault("200", {"description": "Successful Response"})
            if route.event is not None:
                event = references[(route.path, "validation")]
                of_lines = route.path.startswith(OLLAMA)
                answer["content"] |= {NDJSON: _lines(event)} if of_lines else {EVENTS: _stream(event)}
            if route.reads is not None:
                text = "Fields of the body that are unknown and changed nothing."
                answer["headers"] = {IGNORED: {"description": text, "schema": {"type": "string"}}}
    return document


def _stream(event: Any) -> dict[str, Any]:
    """A stream of these events, in OpenAPI 3.2."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": event}
    return {
        "itemSchema": {
            "description": "with stream: true",
            "type": "object",
            "properties": {"data": data, "event": {"type": "string"}},
            "required": ["data"],
        }
    }


def _lines(event: Any) -> dict[str, Any]:
    """A stream of these objects, each on a line of its own."""
    return {"itemSchema": {"description": "unless stream: false", "allOf": [event]}}
