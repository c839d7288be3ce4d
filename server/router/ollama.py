"""Ollama's list of the router's models: what is known of them without loading them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.ollama import OllamaShowRequest, unloads
from dflash_local.server.formats import ollama_models as models
from dflash_local.server.formats.ollama import empty_part
from dflash_local.server.formats.ollama_models import UNKNOWN, ModelFacts, file_facts
from dflash_local.server.http_errors import HTTPError
from dflash_local.server.router.instance import LOADED, Instance
from dflash_local.server.router.pool import RETRY_SECONDS
from dflash_local.server.router.router import Router
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.routes.ollama import VERSION
from dflash_local.server.shapes import ollama as shapes

# The endpoints that write, and their prompts.
_PROMPTS = {"/api/chat": "messages", "/api/generate": "prompt"}


class OllamaModels:
    """The handlers."""

    def __init__(self, router: Router, find: Callable[[str], Instance]) -> None:
        self._router, self._find = router, find

    async def version(self, request: Request) -> Response:
        """The version of Ollama whose API this is."""
        return JSON(shapes.OllamaVersion(version=VERSION))

    async def tags(self, request: Request) -> Response:
        """All models."""
        known = [one for one in self._router.pool if not one.model.hidden]
        found = await asyncio.to_thread(lambda: [models.listed(one.model.name, _facts(one)) for one in known])
        return JSON(shapes.OllamaTags(models=found))

    async def processes(self, request: Request) -> Response:
        """The models that are in memory."""
        found = await asyncio.to_thread(lambda: [*self._loaded()])
        return JSON(shapes.OllamaProcesses(models=found))

    async def show(self, request: Request, body: OllamaShowRequest) -> Response:
        """A model, as its file tells of it; it is not loaded for that."""
        instance = self._find(body.model or "")
        facts, meta = await asyncio.to_thread(_facts, instance), instance.info.get("meta", {})
        defaults = self._router.settings.defaults
        return JSON(models.shown(instance.model.name, facts, defaults, meta.get("n_ctx")))

    def _loaded(self) -> Iterator[shapes.OllamaLoaded]:
        for one in self._router.pool:
            if one.status == LOADED:
                meta = one.info.get("meta", {})
                yield models.loaded(
                    one.model.name,
                    _facts(one),
                    size=meta.get("size") or 0,
                    size_vram=0,
                    n_ctx=meta.get("n_ctx") or 0,
                    idle_left=None,
                    now=time.time(),
                )


def add_routes(app: DocumentedApp, router: Router, find: Callable[[str], Instance]) -> None:
    """What the router answers itself; `find` is its model of a name, or raises."""
    own = OllamaModels(router, find)
    more: dict[str, Any] = {
        "needs": None,
        "wakes": False,
        "responses": {kind: {"model": shapes.OllamaError} for kind in ("4XX", "5XX")},
    }
    for path, handler, answer, method in (
        ("/api/version", own.version, shapes.OllamaVersion, "GET"),
        ("/api/tags", own.tags, shapes.OllamaTags, "GET"),
        ("/api/ps", own.processes, shapes.OllamaProcesses, "GET"),
        ("/api/show", own.show, shapes.OllamaModel, "POST"),
    ):
        add_endpoint(app, (path,), handler, answer=answer, methods=[method], **more)


def streams(path: str, body: Mapping[str, Any]) -> bool:
    """Whether the answer to a request is a stream: Ollama's are, unless they are told not to be."""
    return body.get("stream") is not False if path in _PROMPTS else body.get("stream") is True


def only_unloads(path: str, body: Mapping[str, Any]) -> bool:
    """Whether a request only frees a model. Raises RequestError if it is malformed."""
    return path in _PROMPTS and not body.get(_PROMPTS[path]) and unloads(body.get("keep_alive"))


def unload(router: Router, instance: Instance, path: str) -> Response:
    """End the model's process. Raises HTTPError while it answers."""
    if instance.users:
        raise HTTPError(503, "the model is answering: ask again later", code="busy", retry_after=RETRY_SECONDS)
    if instance.is_running:
        router.pool.unload(instance)
    return JSON(empty_part(path, instance.model.name, done=True, done_reason="unload"))


def _facts(instance: Instance) -> ModelFacts:
    path = instance.model.path
    facts = (file_facts(str(path)) if path else None) or UNKNOWN
    return replace(facts, abilities=instance.model.abilities)
