"""The app: routes over a Service, with their middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dflash_local.errors import DFlashError
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.engine_life import Loader
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.fields import built
from dflash_local.server.http_errors import HTTPError, error_response
from dflash_local.server.middleware.failures import Failures
from dflash_local.server.middleware.head import HeadAsGet
from dflash_local.server.middleware.request_log import RequestLog
from dflash_local.server.middleware.root_path import RootPath
from dflash_local.server.middleware.slashes import Slashes
from dflash_local.server.recordings.recorder import Recorder
from dflash_local.server.recordings.recordings import Recordings
from dflash_local.server.routes import chat, facts, page, streams
from dflash_local.server.security.body_limits import BodyLimits
from dflash_local.server.security.host_check import HostCheck
from dflash_local.server.security.key_check import KeyCheck, RoutersKey
from dflash_local.server.security.origins import CorsHeaders, OriginCheck
from dflash_local.server.served import Served
from dflash_local.server.service import Service
from dflash_local.server.settings import Settings

# Modules of routes/ that are imported later (late_routes.py), the likelier ones first. What the chat page and most
# clients' first answer take is there from the start.
LATE = (
    "completions", "embeddings", "text", "messages", "responses", "ollama", "control", "machine_report", "infill",
    "slots", "absent",
)  # fmt: skip


def create_app(load: Loader | None, settings: Settings | None = None) -> DocumentedApp:
    """Create the app; its Service is `app.state.service`.

    `load` makes the engine in a thread, given a function that takes the progress (0..1) and returns False when it
    should stop. Without `load` there are only the settings' models for embeddings and scores.
    """
    service, recordings = Service(load, settings or Settings()), Recordings()
    app = new_app(service, recordings, _document)
    chat.add_routes(app, service)
    facts.add_routes(app, service)
    streams.add_routes(app, recordings)
    page.add_routes(app, service.settings)
    late = (partial(_add_routes, name, app, service) for name in LATE)
    app.late_routes.expect(*late, partial(_add_pages, app))
    service.beside = partial(app.late_routes.load_in_pauses, lambda: service.life.sleep.is_used)
    return app


def _add_routes(name: str, app: DocumentedApp, service: Service) -> None:
    """Add a group to an app that runs: all of its routes at once, since several may have one path."""
    group = Starlette()
    import_module(f"dflash_local.server.routes.{name}").add_routes(group, service)
    app.router.routes += group.routes


def _add_pages(app: DocumentedApp) -> None:
    """Serve the app's document, and the page that shows it."""
    from dflash_local.server.docs import add_docs
    from dflash_local.server.openapi import add_openapi

    add_openapi(app)
    add_docs(app)


def _document(app: DocumentedApp) -> dict[str, Any]:
    from dflash_local.server.openapi import openapi_document

    return openapi_document(app)


def new_app(
    service: Served, recordings: Recordings, document_of: Callable[[DocumentedApp], dict[str, Any]]
) -> DocumentedApp:
    """The app of `service`, without routes."""

    @asynccontextmanager
    async def lifespan(_app: DocumentedApp) -> AsyncIterator[None]:
        service.start()
        asyncio.get_running_loop().call_soon(built, ChatRequest)  # the first body's, most likely, while the model loads
        yield
        await service.close()

    app = DocumentedApp(lifespan, document_of)
    app.state.service = service
    _add_middleware(app, service.settings, recordings)
    _add_error_handlers(app)
    return app


def _add_middleware(app: DocumentedApp, settings: Settings, recordings: Recordings) -> None:
    """Add the middleware, the innermost first; the last one sees a request first."""
    app.add_middleware(Recorder, recordings=recordings)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimits, limits=settings.limits)
    if settings.api_keys:
        app.add_middleware(KeyCheck, keys=settings.api_keys)
    if settings.behind_router:
        app.add_middleware(RoutersKey)
    app.add_middleware(Slashes)
    if settings.webui and settings.static:
        from dflash_local.server.middleware.static_folder import StaticFolder  # a slow import, and few need it

        app.add_middleware(StaticFolder, folder=settings.static)
    app.add_middleware(OriginCheck, cors=settings.cors)
    if settings.allowed_hosts is not None:
        app.add_middleware(HostCheck, allowed=settings.allowed_hosts)
    app.add_middleware(Failures)
    if settings.api_prefix:
        app.add_middleware(RootPath, root=settings.api_prefix)
    app.add_middleware(CorsHeaders, cors=settings.cors)
    app.add_middleware(RequestLog, root=settings.api_prefix)


def _add_error_handlers(app: DocumentedApp) -> None:
    """Answer requests whose handlers raise."""

    async def on_error(_request: Request, error: Exception) -> Response:
        return error_response(error)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.url.path}: {error.detail}"
        answer = error_response(HTTPError(error.status_code, message))
        answer.headers.update(error.headers or {})  # Allow, of a 405
        return answer

    app.add_exception_handler(DFlashError, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_error)
