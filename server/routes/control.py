"""Actions on chat completions that run."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.control import ControlRequest
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.shapes.control import Control

NOT_RUNNING = "no active completion for this id"
NO_THOUGHTS = "this completion does not think: it has not begun to, or is done with it"


def add_routes(app: DocumentedApp, service: Service) -> None:

    async def control(_request: Request, body: ControlRequest) -> Response:
        """End the thoughts of a running chat completion: it goes on with the answer itself."""
        engine, generations = service.engine, service.chats.get(body.id)
        if not generations:
            return JSON(Control(success=False, message=NOT_RUNNING))
        # waits until the engine is between two steps
        ended = [await asyncio.to_thread(engine.end_reasoning, generation) for generation in generations]
        return JSON(Control(success=True) if any(ended) else Control(success=False, message=NO_THOUGHTS))

    add_endpoint(app, ("/v1/chat/completions/control",), control, answer=Control, wakes=False)
