"""The router's app."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dflash_local.server.app import create_app, new_app
from dflash_local.server.docs import add_docs
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.openapi import add_openapi, openapi_document
from dflash_local.server.recordings.recordings import Recordings
from dflash_local.server.router.router import Router
from dflash_local.server.router.routes import add_forwarding, add_routes
from dflash_local.server.routes import absent, page, streams
from dflash_local.server.routes.endpoint import Endpoint


def create_router_app(router: Router) -> DocumentedApp:
    """The app; `app.state.service` is the router. Its document has the endpoints of instances, too."""
    recordings = Recordings()
    app = new_app(router, recordings, lambda own: _joined(openapi_document(single), openapi_document(own)))
    absent.add_routes(app)
    add_routes(app, router)
    streams.add_routes(app, recordings)
    page.add_routes(app, router.settings)
    single = create_app(_no_engine, replace(router.settings, api_keys=()))  # never started
    add_forwarding(app, router, [route for route in single.routes if isinstance(route, Endpoint)])

    add_openapi(app)
    add_docs(app)
    return app


def _no_engine(_progress: Any) -> Any:
    raise AssertionError("a router has no engine")


def _joined(single: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The document of an instance, with the router's own endpoints added, or in place of the instance's."""
    schemas = single["components"]["schemas"] | own["components"]["schemas"]
    paths = {path: single["paths"].get(path, {}) | operations for path, operations in own["paths"].items()}
    return {**single, "paths": single["paths"] | paths, "components": {**single["components"], "schemas": schemas}}
