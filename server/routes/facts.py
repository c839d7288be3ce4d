"""Facts: health, models, properties, slots, metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.embeddings.embedding_metrics import embedding_metrics, metrics_without_engine
from dflash_local.server.encoding import JSON
from dflash_local.server.formats import facts
from dflash_local.server.http_errors import HTTPError, not_supported
from dflash_local.server.routes.endpoint import add_endpoint, path_parameter, query_parameter
from dflash_local.server.service import Service
from dflash_local.server.shapes.facts import Health, Model, Models, Props, Slot
from dflash_local.stats import EngineStats

_MODEL = {"parameters": [path_parameter("model", "one of the model's names")]}
_IF_FULL = query_parameter("fail_on_no_slot", "if not empty, 503 if no slot is free", {"type": "string", "default": ""})
_SLOTS = {"parameters": [_IF_FULL]}


class Facts:
    """The handlers."""

    def __init__(self, service: Service) -> None:
        self._service, self._started = service, int(time.time())

    async def health(self, request: Request) -> Response:
        """Whether requests are answered."""
        status, body = self._service.health()
        return JSON(body, status)

    async def models(self, request: Request) -> Response:
        """The models that are served."""
        return JSON(facts.models(self._service, self._started))

    async def model(self, request: Request) -> Response:
        """One of them, by any of its names."""
        name = request.path_params["model"]
        if not name:
            return await self.models(request)
        return JSON(_named(name, facts.models(self._service, self._started)["data"]))

    async def props(self, request: Request) -> Response:
        """llama-server's properties."""
        return JSON(facts.props(self._service))

    async def set_props(self, request: Request) -> Response:
        """No property can be changed."""
        raise not_supported("no property can be changed while the server runs: restart it with other flags")

    async def slots(self, request: Request) -> Response:
        """The slots and what they do."""
        if not self._service.settings.slots_endpoint:
            raise not_supported("started with --no-slots")
        found = self._service.engine.slots()
        if request.query_params.get("fail_on_no_slot") and all(slot["is_processing"] for slot in found):
            raise HTTPError(503, "no slot available", code="no_slot", retry_after=1)
        return JSON(found)

    async def metrics(self, request: Request) -> Response:
        """Counters for Prometheus."""
        service = self._service
        if not service.settings.metrics_endpoint:
            raise not_supported("started with --no-metrics")
        if service.has_engine:
            metrics = service.metrics  # raises while the engine loads
            text = metrics.render(EngineStats.of(await service.life.stats())) + embedding_metrics(service.processes)
            started = metrics.started
        else:
            text, started = metrics_without_engine(service.processes), self._started
        headers = {"Process-Start-Time-Unix": str(started)}
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4", headers=headers)


def add_routes(app: DocumentedApp, service: Service) -> None:
    """What is served, and how it goes."""
    own = Facts(service)
    for paths, handler, answer, extra in (
        (("/health", "/v1/health"), own.health, Health, None),
        (("/models", "/v1/models"), own.models, Models, None),
        (("/models/{model:path}", "/v1/models/{model:path}"), own.model, Model, _MODEL),
        (("/props",), own.props, Props, None),
        (("/slots",), own.slots, list[Slot], _SLOTS),
        (("/metrics",), own.metrics, None, None),
    ):
        add_endpoint(app, paths, handler, answer=answer, methods=["GET"], openapi_extra=extra)
    add_endpoint(app, ("/props",), own.set_props, answer=None, include_in_schema=False)


def _named(name: str, models: Sequence[Model]) -> Model:
    found = next((entry for entry in models if name in (entry["id"], *entry["aliases"])), None)
    if found is None:
        raise HTTPError(404, f"there is no model {name!r:.80} here", code="model_not_found")
    return found
