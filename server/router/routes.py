"""The router's endpoints: its own, and those of its instances, which the field `model` chooses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dflash_local.errors import RequestError
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.body import parsed, read_bytes
from dflash_local.server.fields.generation_fields import MAX_PING
from dflash_local.server.fields.router import ModelRequest
from dflash_local.server.formats.facts import architecture
from dflash_local.server.formats.machine_report import computer
from dflash_local.server.formats.reply import fingerprint
from dflash_local.server.http_errors import NATIVE, HTTPError, api_at, not_supported
from dflash_local.server.route_path import route_path
from dflash_local.server.router import ollama
from dflash_local.server.router.instance import LOADING, Instance
from dflash_local.server.router.model_events import EventFeed
from dflash_local.server.router.proxy import Forwarded, IncomingRequest
from dflash_local.server.router.router import NO_MODELS, Router
from dflash_local.server.router.router_metrics import router_metrics
from dflash_local.server.routes.endpoint import Endpoint, add_endpoint
from dflash_local.server.security.origins import is_foreign
from dflash_local.server.shapes.facts import Health
from dflash_local.server.shapes.machine_report import MachineStatus, RouterMachine
from dflash_local.server.shapes.router import ModelStatus, RouterModel, RouterModels, RouterProps, Success
from dflash_local.server_address import shown_url
from dflash_local.words import first_names

_ON = ("true", "1")
_CONTROL = "/v1/chat/completions/control"  # is about an answer that is being written
_MOST_NAMED = 8


class OwnEndpoints:
    """What the router answers itself; `model` in the address passes some of it on to that model's process."""

    def __init__(self, router: Router) -> None:
        self._router, self._created = router, int(time.time())

    async def health(self, request: Request) -> Response:
        """Whether requests are answered."""
        return JSON(Health(status="ok"))

    async def models(self, request: Request) -> Response:
        """All models and their status; with `reload`, after a new look at what there is."""
        if request.query_params.get("reload") in _ON:
            await self._router.reload()
        return JSON(RouterModels(object="list", data=[_entry(one, self._created) for one in _not_hidden(self._router)]))

    async def model(self, request: Request) -> Response:
        """One model and its status."""
        return JSON(_entry(_found(self._router, request.path_params["model"], 404), self._created))

    async def load(self, request: Request, body: ModelRequest) -> Response:
        """Begin to load a model."""
        instance = _found(self._router, body.model, 404)
        if instance.is_running:
            raise RequestError("model is already running", param="model")
        self._router.pool.load(instance)
        return JSON(Success(success=True))

    async def unload(self, request: Request, body: ModelRequest) -> Response:
        """Begin to unload a model; what it still answers may take a while."""
        instance = _found(self._router, body.model, 400)
        if not instance.is_running:
            raise RequestError("model is not running", param="model")
        self._router.pool.unload(instance)
        return JSON(Success(success=True))

    async def events(self, request: Request) -> Response:
        """Events of models, as they happen."""
        return EventFeed(self._router.events, self._router.stopping)

    async def props(self, request: Request) -> Response:
        """The router's properties; with `model`, those of that model."""
        if request.query_params.get("model"):
            return await forward(self._router, request)
        own = RouterProps(
            role="router",
            max_instances=self._router.pool.most,
            models_autoload=self._router.options.autoload,
            model_alias="dflash-local",
            model_path="none",
            default_generation_settings={"params": {}, "n_ctx": 0},
            ui_settings=dict(self._router.settings.ui_settings),
            build_info=fingerprint(),
            cors_proxy_enabled=False,
        )
        return JSON(own)

    async def metrics(self, request: Request) -> Response:
        """Counters for Prometheus, of all loaded models; with `model`, of that model alone."""
        if request.query_params.get("model"):
            return await forward(self._router, request)
        if not self._router.settings.metrics_endpoint:
            raise not_supported("started with --no-metrics")
        return PlainTextResponse(await router_metrics(self._router.pool), media_type="text/plain; version=0.0.4")

    async def machine(self, request: Request) -> Response:
        """The router's machine and its models; with `model`, the machine as that model's process has it."""
        if request.query_params.get("model"):
            return await forward(self._router, request)
        listed = [MachineStatus(id=one.model.name, status=one.status) for one in _not_hidden(self._router)]
        return JSON(RouterMachine(role="router", computer=await asyncio.to_thread(computer), models=listed))

    async def download(self, request: Request) -> Response:
        """Models are not downloaded by requests."""
        hint = "on the server: dflash-local pull USER/NAME:QUANT, then GET /models?reload=1"
        raise not_supported(f"models are not downloaded by requests; {hint}")

    async def remove(self, request: Request) -> Response:
        """Models are not removed by requests."""
        why = "files of the cache belong to other programs, too: models are not removed by requests"
        raise not_supported(why)


def add_routes(app: DocumentedApp, router: Router) -> None:
    """Add the router's own endpoints."""
    own = OwnEndpoints(router)
    for paths, handler, answer, methods in (
        (("/health", "/v1/health"), own.health, Health, ["GET"]),
        (("/models", "/v1/models"), own.models, RouterModels, ["GET"]),
        (("/models/load",), own.load, Success, ["POST"]),
        (("/models/unload",), own.unload, Success, ["POST"]),
        (("/props",), own.props, RouterProps, ["GET"]),
        (("/machine",), own.machine, RouterMachine, ["GET"]),
        (("/metrics",), own.metrics, None, ["GET"]),
        (("/models",), own.download, Success, ["POST"]),
        (("/models",), own.remove, Success, ["DELETE"]),
        (("/models/sse",), own.events, None, ["GET"]),
        # the last one: it takes all that is left
        (("/models/{model:path}", "/v1/models/{model:path}"), own.model, RouterModel, ["GET"]),
    ):
        add_endpoint(app, paths, handler, answer=answer, methods=methods, needs=None, wakes=False)
    ollama.add_routes(app, router, lambda name: _chosen(router, name, 404))


def add_forwarding(app: DocumentedApp, router: Router, endpoints: Iterable[Endpoint]) -> None:
    """Add the endpoints of an instance, except paths that the router answers itself."""
    own = {route.path for route in app.routes if isinstance(route, Route)}

    async def handler(request: Request) -> Response:
        return await forward(router, request)

    for endpoint in endpoints:
        if endpoint.path not in own and "{model" not in endpoint.path and endpoint.include_in_schema:
            methods = sorted(endpoint.methods or ())
            app.router.routes.append(Route(endpoint.path, handler, methods=methods, include_in_schema=False))


async def forward(router: Router, request: Request) -> Response:
    """The answer of the instance that is meant. Raises DFlashError if there is none, or it must not be loaded."""
    settings, path = router.settings, route_path(request.scope)
    raw = await read_bytes(request)
    body = await parsed(raw) if raw else {}
    named = body.get("model")
    name = request.query_params.get("model") if named is None else named
    instance = _chosen(router, name, 400 if api_at(path) is NATIVE else 404)
    if ollama.only_unloads(path, body):
        return ollama.unload(router, instance, path)
    autoload = request.query_params.get("autoload")
    loads = router.options.autoload if autoload is None else autoload in _ON
    loads = loads and not is_foreign(request.headers, settings.cors)  # a link of another site evicts no model
    if not loads and not instance.is_running:
        raise HTTPError(400, "model is not loaded", code="model_not_loaded")
    request.state.instance = instance.model.name  # for the log
    incoming = IncomingRequest(
        body=raw,
        stream=ollama.streams(path, body),
        ping_interval=_ping_interval(body.get("sse_ping_interval"), settings.defaults.ping_interval),
        waits=loads and path != _CONTROL,
    )
    return Forwarded(router.pool, instance, incoming)


def _ping_interval(asked: Any, default: float) -> float:
    """The seconds that a request asks for; the default where its instance will refuse them."""
    return asked if type(asked) is int and -1 <= asked <= MAX_PING else default


def _chosen(router: Router, name: Any, status: int) -> Instance:
    """The model that a request names, or the only one there is. Fails with `status` if there is no such model."""
    if name is None or name == "":
        if len(listed := _not_hidden(router)) == 1:
            return listed[0]
        raise RequestError(f"model name is missing from the request; {_names(router)}", param="model")
    if not isinstance(name, str):
        raise RequestError(f"model must be a string, got {name!r:.80}", param="model")
    return _found(router, name, status)


def _not_hidden(router: Router) -> list[Instance]:
    return [one for one in router.pool if not one.model.hidden]


def _found(router: Router, name: str, status: int) -> Instance:
    instance = router.pool.find(name)
    if instance is None:
        raise HTTPError(status, f"model {name!r:.200} not found; {_names(router)}", code="model_not_found")
    return instance


def _names(router: Router) -> str:
    names = [one.model.name for one in _not_hidden(router)]
    if not names:
        return NO_MODELS
    return f"there are {first_names(names, _MOST_NAMED)}"


def _entry(instance: Instance, created: int) -> RouterModel:
    """A model as llama-server's router lists it."""
    model = instance.model
    status: ModelStatus = {"value": instance.status, "args": [shown_url(word) for word in instance.command]}
    if model.preset is not None:
        status["preset"] = model.preset
    if instance.status == LOADING:
        status["progress"] = round(instance.progress, 3)
    if instance.failure is not None:
        status |= {"failed": True, "exit_code": instance.exit_code, "error": instance.failure}
    entry: RouterModel = {
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "dflash-local",
        "aliases": list(model.aliases),
        "tags": list(model.tags),
        "status": status,
        "architecture": architecture(model.abilities),
        "source": model.source,
        "can_remove": False,
    }
    if instance.is_running and "meta" in instance.info:
        entry["meta"] = instance.info["meta"]
        entry["architecture"] = instance.info.get("architecture", entry["architecture"])
    return entry
