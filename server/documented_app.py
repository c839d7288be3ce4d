"""DocumentedApp: an app that has an OpenAPI document of its routes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from dflash_local import __version__
from dflash_local.server.late_routes import LateRoutes

Lifespan = Callable[["DocumentedApp"], AbstractAsyncContextManager[None]]


class DocumentedApp(Starlette):
    """Starlette runs the routes; FastAPI documents them (openapi.py), and is imported when it is asked to: that would
    be a sixth of the time of all imports.

    `document_of` makes the document.
    """

    title = "dflash-local"
    version = __version__

    def __init__(self, lifespan: Lifespan, document_of: Callable[[DocumentedApp], dict[str, Any]]) -> None:
        super().__init__(lifespan=lifespan)
        self.router.redirect_slashes = False
        self.document_of = document_of
        self.late_routes = LateRoutes(self.router)

    @property
    def routes(self) -> list[BaseRoute]:
        """All of them: those that are still to come are added first."""
        self.late_routes.load()
        return self.router.routes

    @cached_property
    def document(self) -> dict[str, Any]:
        return self.document_of(self)
