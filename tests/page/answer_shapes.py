"""The answers that the page reads, as TypeScript, from their OpenAPI schemas.

Usage: python -m tests.page.answer_shapes    (writes server/page/src/server/shapes.ts, as `make page` does)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dflash_local.server.shapes.chat import ChatCompletionChunk
from dflash_local.server.shapes.error import ErrorAnswer
from dflash_local.server.shapes.facts import Health, Props
from dflash_local.server.shapes.machine_report import Machine, RouterMachine
from dflash_local.server.shapes.router import RouterModel, RouterModels, RouterProps

PAGE = Path(__file__).resolve().parents[2] / "server" / "page"
FILE = Path("src", "server", "answers.ts")  # in the page's folder
READ = (ChatCompletionChunk, ErrorAnswer, Health, Machine, Props, RouterMachine, RouterModel, RouterModels, RouterProps)
HEAD = "// What the server answers. Written by tests/page/answer_shapes.py; server/shapes/ explains the fields.\n"
SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def text() -> str:
    """The file."""
    shapes = TypeAdapter.json_schemas([(shape.__name__, "validation", TypeAdapter(shape)) for shape in READ])[1]
    return HEAD + "".join(_interface(name, shape) for name, shape in sorted(shapes["$defs"].items()))


def _interface(name: str, shape: Mapping[str, Any]) -> str:
    return f"\n/** {shape['description']} */\nexport interface {name} {{\n" + "".join(_fields(shape)) + "}\n"


def _fields(shape: Mapping[str, Any]) -> Iterator[str]:
    for name, field in shape["properties"].items():
        optional = "" if name in shape.get("required", ()) else "?"
        yield f"  {name}{optional}: {_type(field)};\n"


def _type(schema: Mapping[str, Any]) -> str:
    """A schema as a type; an open object is one of unknown values."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if "anyOf" in schema:
        return " | ".join(_type(kind) for kind in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        item = _type(schema["items"])
        return f"({item})[]" if " " in item else f"{item}[]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, Mapping) else 'unknown'}>"
    return SIMPLE.get(schema.get("type", ""), "unknown")


if __name__ == "__main__":
    (PAGE / FILE).write_text(text(), encoding="utf-8")
