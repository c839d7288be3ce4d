"""Facts: health, models, properties, slots, metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from dflash_local.server.answers.facts import Health, Model, Models, Props, Slot
from dflash_local.server.embeddings.embedding_metrics import embedding_metrics, metrics_without_engine
from dflash_local.server.formats import facts
from dflash_local.server.http_errors import JSON, HTTPError, not_supported
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """What is served, and how it goes."""
    settings = service.settings
    started = int(time.time())

    async def health(request: Request) -> Response:
        """Whether requests are answered."""
        status, body = service.health()
        return JSON(body, status)

    async def models(request: Request) -> Response:
        """The models that are served."""
        return JSON(facts.models(service, started))

    async def model(request: Request, model: str) -> Response:
        """One of them, by any of its names."""
        if not model:
            return await models(request)
        return JSON(_named(model, facts.models(service, started)["data"]))

    async def props(request: Request) -> Response:
        """llama-server's properties."""
        return JSON(facts.props(service))

    async def set_props(request: Request) -> Response:
        """No property can be changed."""
        raise not_supported("no property can be changed while the server runs: restart it with other flags")

    async def slots(request: Request, fail_on_no_slot: str = "") -> Response:
        """The slots and what they do."""
        if not settings.slots_endpoint:
            raise not_supported("started with --no-slots")
        found = service.engine.slots()
        if fail_on_no_slot and all(slot["is_processing"] for slot in found):
            raise HTTPError(503, "no slot available", code="no_slot", retry_after=1)
        return JSON(found)

    async def metrics(request: Request) -> Response:
        """Counters for Prometheus."""
        if not settings.metrics_endpoint:
            raise not_supported("started with --no-metrics")
        headers = {"Process-Start-Time-Unix": str(started)}
        return PlainTextResponse(await _metrics(service), media_type="text/plain; version=0.0.4", headers=headers)

    for paths, handler, answer in (
        (("/health", "/v1/health"), health, Health),
        (("/models", "/v1/models"), models, Models),
        (("/models/{model:path}", "/v1/models/{model:path}"), model, Model),
        (("/props",), props, Props),
        (("/slots",), slots, list[Slot]),
        (("/metrics",), metrics, None),
    ):
        add_endpoint(app, paths, handler, answer=answer, methods=["GET"])
    add_endpoint(app, ("/props",), set_props, answer=None, include_in_schema=False)


def _named(name: str, models: Sequence[Model]) -> Model:
    found = next((entry for entry in models if name in (entry["id"], *entry["aliases"])), None)
    if found is None:
        raise HTTPError(404, f"there is no model {name!r:.80} here", code="model_not_found")
    return found


async def _metrics(service: Service) -> str:
    if not service.has_engine:
        return metrics_without_engine(service.processes)
    return service.metrics.render(await service.stats()) + embedding_metrics(service.processes)
