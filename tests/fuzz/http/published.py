"""What the server publishes about bodies (/openapi.json): names of fields, and values that their schemas allow."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Any
DEPTH = 4
WORDS = ["", "a", "One, two", "\n", "12", "auto", "é", "user"]
LARGE = 2**40


@dataclass(frozen=True)
class Published:
    """The fields of one endpoint's body, with the schemas that these refer to."""

    fields: Mapping[str, Json] = field(default_factory=dict)
    components: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str, method: str) -> Published:
        """Those of the body that `method` `path` reads; none if it reads none."""
        operation = document["paths"].get(path, {}).get(method.lower(), {})
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        components = document.get("components", {}).get("schemas", {})
        return cls(cls({}, components)._named(schema).get("properties", {}), components)

    def value(self, name: str, rng: random.Random) -> Json:
        """A value that the field's schema allows; its bounds are likely."""
        return self._value(self.fields[name], rng, DEPTH)

    def _named(self, schema: Json) -> Json:
        while "$ref" in schema:
            schema = self.components[schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def _value(self, schema: Json, rng: random.Random, depth: int) -> Json:
        schema = self._named(schema)
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return self._value(rng.choice(schema[key]), rng, depth)
        if "const" in schema or "enum" in schema:
            return copy.deepcopy(rng.choice(schema.get("enum") or [schema.get("const")]))
        kind = schema.get("type") or rng.choice(["string", "integer", "boolean", "array", "object"])
        if isinstance(kind, Sequence) and not isinstance(kind, str):
            kind = rng.choice(kind)
        if kind == "object":
            return self._object(schema, rng, depth - 1)
        if kind == "array":
            count = rng.choice([0, 1, 1, 2, 5]) if depth > 0 else 0
            return [self._value(schema.get("items") or {}, rng, depth - 1) for _ in range(count)]
        return {"null": None, "boolean": rng.random() < 0.5, "string": rng.choice(WORDS)}.get(
            kind, _number(schema, kind, rng)
        )

    def _object(self, schema: Json, rng: random.Random, depth: int) -> Json:
        properties, needed = schema.get("properties", {}), schema.get("required", ())
        if depth < 0:
            return {}
        names = [name for name in properties if name in needed or rng.random() < 0.3]
        made = {name: self._value(properties[name], rng, depth) for name in names}
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and rng.random() < 0.7:
            made["a"] = self._value(others, rng, depth)
        return made


def _number(schema: Json, kind: str, rng: random.Random) -> Json:
    low, high = schema.get("minimum", -LARGE), schema.get("maximum", LARGE)
    chosen = rng.choice([low, high, (low + high) / 2, 0, 1, 2, 7, low + 1, high - 1])
    chosen = min(max(chosen, low), high)
    return int(chosen) if kind == "integer" else float(chosen)
