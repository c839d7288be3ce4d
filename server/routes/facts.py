"""Facts: health, models, properties, slots, metrics, and the page."""

from __future__ import annotations

import time
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from dflash_local import __version__
from dflash_local.engine import Engine
from dflash_local.server.answers.facts import Health, Models, Props, Slot
from dflash_local.server.embeddings.metrics import embedding_metrics, metrics_without_engine
from dflash_local.server.errors import JSON, HTTPError
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service, Settings


def add_routes(app: FastAPI, service: Service) -> None:
    """What is served, and how it goes."""
    settings = service.settings
    created = int(time.time())

    async def health(request: Request) -> Response:
        """Whether requests are answered."""
        status, body = service.health()
        return JSON(body, status)

    async def models(request: Request) -> Response:
        """The models that are served."""
        entries = [_entry(settings.alias, _engine_meta(service.engine))] if service.has_engine else []
        for process in service.processes:
            meta = {name: process.facts.get(name) for name in ("n_params", "size", "n_vocab", "n_embd", "n_ctx_train")}
            meta |= {name: process.facts.get(name) for name in ("n_ctx", "pooling")}
            entries.append(_entry(process.options.name, meta))
        return JSON({"object": "list", "data": entries})

    def _entry(name: str, meta: dict[str, Any]) -> dict[str, Any]:
        names = {"aliases": settings.aliases, "tags": settings.tags}
        return {"id": name, "object": "model", "created": created, "owned_by": "dflash-local", **names, "meta": meta}

    async def props(request: Request) -> Response:
        """llama-server's properties."""
        if not service.has_engine:
            return JSON(_props_without_engine(service))
        engine = service.engine
        return JSON({
            "default_generation_settings": {"params": _sampling_dict(settings), "n_ctx": engine.n_ctx_slot},
            "total_slots": engine.n_slots,
            "model_alias": settings.alias,
            "model_path": settings.model_path,
            "modalities": {"vision": False, "audio": False, "video": False},
            "endpoint_slots": settings.slots_endpoint,
            "endpoint_props": False,
            "endpoint_metrics": settings.metrics_endpoint,
            "ui_settings": settings.ui_settings,
            "chat_template": engine.info.get("chat_template", ""),
            "bos_token": service.control_texts["bos_token"],
            "eos_token": service.control_texts["eos_token"],
            "build_info": f"dflash-local {__version__}",
            "is_sleeping": service.sleep.is_sleeping,
            "dflash": {name: value for name, value in engine.info.items() if name != "chat_template"},
        })  # fmt: skip

    async def slots(request: Request) -> Response:
        """The slots and what they do."""
        if not settings.slots_endpoint:
            raise HTTPError(501, "started with --no-slots", type="not_supported_error")
        return JSON(service.engine.slots())

    async def metrics(request: Request) -> Response:
        """Counters for Prometheus."""
        if not settings.metrics_endpoint:
            raise HTTPError(501, "started with --no-metrics", type="not_supported_error")
        if service.has_engine:
            text = service.metrics.render(await service.stats()) + embedding_metrics(service.processes)
        else:
            text = metrics_without_engine(service.processes)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def page(request: Request) -> Response:
        """A page to chat with the model."""
        if not settings.webui:
            raise HTTPException(404, "started with --no-webui")
        return HTMLResponse(files("dflash_local.server").joinpath("page.html").read_text(encoding="utf-8"))

    for paths, handler, answer in (
        (("/health", "/v1/health"), health, Health),
        (("/models", "/v1/models"), models, Models),
        (("/props",), props, Props),
        (("/slots",), slots, list[Slot]),
        (("/metrics",), metrics, None),
    ):
        add_endpoint(app, paths, handler, answer=answer, methods=["GET"])
    add_endpoint(app, ("/",), page, answer=None, methods=["GET"], include_in_schema=False)


def _engine_meta(engine: Engine) -> dict[str, Any]:
    target = engine.info["target"]
    meta = {name: target.get(name) for name in ("n_params", "size", "n_vocab", "n_embd", "n_ctx_train")}
    return {**meta, "n_ctx": engine.n_ctx_slot}


def _props_without_engine(service: Service) -> dict[str, Any]:
    """What is left of the properties where there is no engine."""
    first = service.processes[0]
    return {
        "total_slots": 0,
        "model_alias": first.options.name,
        "model_path": first.options.path,
        "modalities": {"vision": False, "audio": False, "video": False},
        "endpoint_slots": False,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "build_info": f"dflash-local {__version__}",
        "is_sleeping": False,
    }


def _sampling_dict(settings: Settings) -> dict[str, Any]:
    sampling = settings.defaults.sampling
    return {name: getattr(sampling, name) for name in sampling.__dataclass_fields__} | {
        "max_tokens": settings.defaults.max_tokens
    }
