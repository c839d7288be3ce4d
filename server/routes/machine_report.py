"""The machine: what runs here, what it takes, and how fast it goes."""

from __future__ import annotations

import asyncio
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.formats.machine_report import machine
from dflash_local.server.routes.endpoint import add_endpoint, query_number, query_parameter
from dflash_local.server.service import Service
from dflash_local.server.shapes.machine_report import Machine, MachineState

PATH = "/machine"
_SINCE = "since"
_DOCUMENTED = query_parameter(
    _SINCE,
    "first second of throughput to report, counted since the model was loaded",
    {"type": "integer", "minimum": 0, "default": 0},
)


def add_routes(app: DocumentedApp, service: Service) -> None:

    async def tell_machine(request: Request) -> Response:
        """The pair, its devices and memory, what passes cost here, what the controller chose, slots, throughput."""
        since, engine = query_number(request, _SINCE, "a number of seconds", 9), service.engine
        state = cast(MachineState, service.life.state.value)
        stats = await service.life.stats()
        return JSON(await asyncio.to_thread(machine, engine, service.settings, stats, state, since))

    add_endpoint(
        app, (PATH,), tell_machine, answer=Machine, methods=["GET"], openapi_extra={"parameters": [_DOCUMENTED]}
    )
