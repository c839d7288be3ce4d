"""The app: routes over a Service, and what stands before and behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from dflash_local import __version__
from dflash_local.errors import DFlashError
from dflash_local.server.docs import add_docs
from dflash_local.server.errors import HTTPError, error_response
from dflash_local.server.openapi import add_openapi
from dflash_local.server.routes import chat, completions, embeddings, facts, messages, responses, text
from dflash_local.server.security import KeyCheck
from dflash_local.server.service import Loader, Service, Settings


def create_app(load: Loader | None, settings: Settings | None = None) -> FastAPI:
    """The app; `app.state.service` is its Service. `load` makes the engine, in a thread, once the app has started.

    It gets a function to report progress (0..1) to, which returns False when loading should stop. None: there is no
    engine, only what the settings name for embeddings and scores.
    """
    settings = settings or Settings()
    service = Service(load, settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    app = FastAPI(title="dflash-local", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    if settings.api_keys:
        app.add_middleware(KeyCheck, keys=settings.api_keys)
    app.add_middleware(  # the outermost: preflight requests carry no key
        CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
    )
    _add_error_handlers(app)
    for group in (chat, completions, embeddings, facts, messages, responses, text):
        group.add_routes(app, service)
    add_openapi(app)
    add_docs(app)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    async def on_error(_request: Request, error: Exception) -> Response:
        return error_response(error)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
        return error_response(
            HTTPError(error.status_code, f"{request.method} {request.url.path}: {error.detail}", type=kind)
        )

    app.add_exception_handler(DFlashError, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_error)
