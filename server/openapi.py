"""The OpenAPI document of the app, and pages that show it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from dflash_local.server.fields.fields import IGNORED
from dflash_local.server.routes.endpoint import Endpoint

REF = "#/components/schemas/{model}"


def add_openapi(app: FastAPI) -> None:
    """Let the app describe itself; made when first asked for."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = describe(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def describe(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with what it cannot know: events of streams and the header of ignored fields."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    endpoints = [route for route in app.routes if isinstance(route, Endpoint)]
    events = {route.event for route in endpoints if route.event is not None}
    references, definitions = models_json_schema(
        [(event, "validation") for event in sorted(events, key=lambda event: event.__name__)], ref_template=REF
    )
    document["components"]["schemas"] |= definitions.get("$defs", {})
    for route in (route for route in endpoints if route.include_in_schema):
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            answer = operation["responses"].setdefault("200", {"description": "Successful Response"})
            if route.event is not None:
                stream = {"schema": references[(route.event, "validation")], "description": "with stream: true"}
                answer["content"]["text/event-stream"] = stream
            if route.reads is not None:
                text = "Fields of the body that are unknown and changed nothing."
                answer["headers"] = {IGNORED: {"description": text, "schema": {"type": "string"}}}
    return document
