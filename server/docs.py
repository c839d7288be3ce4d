"""The page at /docs, which needs no network: Swagger UI if the `docs` extra is installed, else a page of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from dflash_local.server.documented_app import DocumentedApp

HINT = "To try requests out here: pip install 'dflash-local[docs]'. For tools: openapi.json."
STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
td { border-top: 1px solid #8884; padding: .25rem .8rem .25rem 0; vertical-align: top; }
h2 { margin-top: 2.5rem; }
"""


def add_docs(app: DocumentedApp) -> None:
    """Serve /docs."""
    assets = swagger_assets()
    if assets is not None:
        app.mount("/docs/assets", StaticFiles(directory=assets))

    async def docs(request: Request) -> Response:
        if assets is None:
            return HTMLResponse(await asyncio.to_thread(page, app))
        from fastapi.openapi.docs import get_swagger_ui_html

        return get_swagger_ui_html(
            title=app.title,
            openapi_url="openapi.json",
            swagger_js_url="docs/assets/swagger-ui-bundle.js",
            swagger_css_url="docs/assets/swagger-ui.css",
            swagger_favicon_url="docs/assets/favicon.png",
        )

    app.add_route("/docs", docs, include_in_schema=False)


def swagger_assets() -> Path | None:
    """The folder with Swagger UI's files; None if the package that has them is not installed."""
    spec = find_spec("fastapi_offline")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "static"
    return folder if (folder / "swagger-ui-bundle.js").is_file() else None


@lru_cache(maxsize=1)
def page(app: DocumentedApp) -> str:
    """The document as plain HTML."""
    document = app.document
    body = "".join(_sections(document))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(app.title)}</title>'
        f"<style>{STYLE}</style><h1>{escape(app.title)} {escape(app.version)}</h1><p>{escape(HINT)}</p>{body}</html>"
    )


def _sections(document: Mapping[str, Any]) -> Iterator[str]:
    shown: list[str] = []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['description'])}</p>"
            for title, part in (("Body", operation.get("requestBody")), ("Answer", operation["responses"]["200"])):
                for kind, content in (part or {}).get("content", {}).items():
                    names = _references(content.get("schema") or content["itemSchema"])
                    links = ", ".join(f'<a href="#{name}">{name}</a>' for name in names) or "JSON"
                    yield f"<p>{title} ({escape(kind)}): {links}</p>"
                    shown += names
    yield "<h1>Objects</h1>"
    for name in _reachable(document, shown):
        schema = document["components"]["schemas"][name]
        yield f'<h2 id="{name}">{name}</h2><p>{escape(schema.get("description", ""))}</p><table>'
        for field, about in schema.get("properties", {}).items():
            needed = " (needed)" if field in schema.get("required", ()) else ""
            text = escape(about.get("description", ""))
            yield f"<tr><td><code>{escape(field)}</code>{needed}<td>{_type(about)}<td>{text}"
        yield "</table>"


def _references(schema: Any) -> list[str]:
    """Names of the objects that a schema mentions."""
    if isinstance(schema, list):
        return list(dict.fromkeys(name for item in schema for name in _references(item)))
    if not isinstance(schema, Mapping):
        return []
    own = [schema["$ref"].rsplit("/", 1)[1]] if isinstance(schema.get("$ref"), str) else []
    return list(dict.fromkeys(own + _references([value for key, value in schema.items() if key != "$ref"])))


def _reachable(document: Mapping[str, Any], names: list[str]) -> list[str]:
    found = dict.fromkeys(names)
    waiting = list(found)
    while waiting:
        for name in _references(document["components"]["schemas"][waiting.pop()]):
            if name not in found:
                found[name] = None
                waiting.append(name)
    return list(found)


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words, as HTML."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f'<a href="#{name}">{name}</a>'
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(kind for part in schema[key] if (kind := _type(part)) != "null")
    if "enum" in schema or "const" in schema:
        return ", ".join(escape(str(value)) for value in schema.get("enum", [schema.get("const")]) if value is not None)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    limits = [f"{sign} {schema[key]:g}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return " ".join([escape(str(schema.get("type", "anything"))), *limits])
