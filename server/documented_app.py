"""DocumentedApp: an app that has an OpenAPI document of its routes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any

from starlette.applications import Starlette

from dflash_local import __version__

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

    @cached_property
    def document(self) -> dict[str, Any]:
        return self.document_of(self)
