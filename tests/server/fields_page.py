"""docs/fields.md: every field that a body may hold, by endpoint, and what becomes of it. Made of the fields themselves.

Usage: python -m tests.server.fields_page    (writes the page; a test holds it to the fields)
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from dflash_local.server.app import create_app
from dflash_local.server.fields.fields import Fields, Rule
from dflash_local.server.routes.endpoint import Endpoint
from tests.tables import markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fields.md"
# Tables, each with its columns: a heading and the path whose body it shows. Every body is in one of them.
WRITING = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "completion": "/completion",
    "infill": "/infill",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "chat (Ollama)": "/api/chat",
    "generate": "/api/generate",
}
EMBEDDING = {
    "OpenAI's": "/v1/embeddings",
    "llama-server's": "/embeddings",
    "Ollama's": "/api/embed",
    "its older one": "/api/embeddings",
}
GROUPS = {"Endpoints that write": WRITING, "Endpoints that embed": EMBEDDING}
SHOWN = {"read": "yes", "mapped": "mapped", "harmless": "no effect", "refused": "refused"}
HEAD = """# Fields of requests

Every field that a body may hold, and what becomes of it:

| | |
|---|---|
| yes | it is read |
| mapped | it means other fields; the last column says which |
| no effect | accepted, because leaving it out would be the same |
| refused | 400, unless its value asks for what happens anyway (`false`, `0`, empty) |
| – | not known at this endpoint: named in the header `X-DFlash-Ignored`, refused with `--strict-fields` |

This page is made by `python -m tests.server.fields_page`. Types and ranges are in `/docs`; what the fields mean is in
[serving.md](serving.md#what-a-request-may-say), llama-server's README and the owners' documents.
"""


def bodies() -> dict[str, type[Fields]]:
    """The model of each path's body."""
    app = create_app(lambda _: None)  # type: ignore[arg-type, return-value]
    return {route.path: route.reads for route in app.routes if isinstance(route, Endpoint) and route.reads}


def text() -> str:
    """The page."""
    found = bodies()
    parts = [HEAD]
    for title, columns in GROUPS.items():
        parts += [f"## {title}\n", _columns(columns, found), _table(columns, found)]
    shown = {found[path] for columns in GROUPS.values() for path in columns.values()}
    for model in found.values():
        if model not in shown:
            shown.add(model)
            parts += [f"## {_paths(model, found)}\n", _list(model)]
    return "\n".join(parts)


def _paths(model: type[Fields], found: Mapping[str, type[Fields]]) -> str:
    return ", ".join(f"`{path}`" for path, other in found.items() if other is model)


def _columns(columns: Mapping[str, str], found: Mapping[str, type[Fields]]) -> str:
    lines = [f"- **{name}**: {_paths(found[path], found)}" for name, path in columns.items()]
    return "\n".join(textwrap.fill(line, 120, subsequent_indent="  ") for line in lines) + "\n"


def _table(columns: Mapping[str, str], found: Mapping[str, type[Fields]]) -> str:
    models = [found[path] for path in columns.values()]
    names = sorted({name for model in models for name in model.RULES}, key=lambda name: (name.lower(), name))
    rows = []
    for name in names:
        rules = [model.RULES.get(name) for model in models]
        rows.append([f"`{name}`", *(SHOWN[rule.kind] if rule else "–" for rule in rules), _about(name, rules)])
    return markdown(["field", *columns, ""], _alike_together(rows))


def _list(model: type[Fields]) -> str:
    rows = [[f"`{name}`", SHOWN[rule.kind], _about(name, [rule])] for name, rule in sorted(model.RULES.items())]
    return markdown(["field", "", ""], _alike_together(rows))


def _alike_together(rows: Sequence[list[str]]) -> list[list[str]]:
    """One row for all fields of which the same is said."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *said in rows:
        names.setdefault(tuple(said), []).append(name)
    return [[", ".join(alike), *said] for said, alike in names.items()]


def _about(name: str, rules: Sequence[Rule | None]) -> str:
    """What the endpoints say of it, each thing once."""
    said = []
    for rule in rules:
        if rule is not None:
            other = rule.kind == "read" and rule.target != name
            said.append(f"another name of `{rule.target}`" if other else rule.text)
    return "; ".join(dict.fromkeys(part for part in said if part))


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
