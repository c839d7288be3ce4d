"""The public test suite of JSON Schema (draft 2020-12), as the package jsonschema brings it in its source distribution.

For every schema: it is refused, or no invalid instance is text of its grammar, unless what the grammar does not hold is
named. And with what a schema leaves open said in it ("any type", "any other property"), every valid instance is.
"""

from __future__ import annotations

import itertools
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream
from dflash_local.cache_dir import cache_dir
from dflash_local.errors import BuildError, RequestError
from dflash_local.native import NativeEngine, schema_ignored
from tests.engine.grammars import takes

Case = dict[str, Any]


SOURCE = Upstream("jsonschema", "4.26.0", "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326", "")
FOLDER = "/json/tests/draft2020-12/"
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]

# Valid, and not written: numbers of more than 16 digits; keywords that a schema of schemas turns off.
NARROWER = {
    ("optional/bignum", "integer"),
    ("optional/bignum", "number"),
    ("vocabulary", "schema that uses custom metaschema with with no validation vocabulary"),
    ("optional/float-overflow", "all integers are multiples of 0.5, if overflow is handled"),
}
# Lower case, fractions of any length, leap seconds: RFC 3339 has them, a grammar writes the common form.
FORMS = ("optional/format/date-time", "optional/format/time", "optional/format/uuid", "format")


@pytest.fixture(scope="module")
def suite() -> dict[str, list[Case]]:
    with BuildLog(cache_dir() / "logs" / "schema-suite.log") as log:
        try:
            archive = SOURCE.fetch(log)
        except BuildError as error:
            if "could not download" not in str(error):
                raise
            pytest.skip(f"no network: {error}")
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            _, is_case, name = member.name.partition(FOLDER)
            content = tar.extractfile(member) if is_case and name.endswith(".json") else None
            if content:
                found[name.removesuffix(".json")] = json.load(content)
    assert len(found) > 60
    return found


def texts(value: Any) -> Iterator[str]:
    """JSON texts of a value, with its keys in every order: a grammar knows one."""
    if isinstance(value, dict):
        for pairs in itertools.permutations(value.items()):
            for values in itertools.product(*[list(texts(v)) for _, v in pairs]):
                members = (
                    f"{json.dumps(key, ensure_ascii=False)}: {v}" for (key, _), v in zip(pairs, values, strict=False)
                )
                yield "{" + ", ".join(members) + "}"
    elif isinstance(value, list):
        for items in itertools.product(*[list(texts(item)) for item in value]):
            yield "[" + ", ".join(items) + "]"
    elif isinstance(value, float) and value == int(value):
        yield str(int(value))
    else:
        yield json.dumps(value, ensure_ascii=False)


def opened(schema: Any, properties: bool) -> Any:
    """A schema that says what the draft means where it says nothing, and a grammar writes less (docs/schemas.md)."""
    if not isinstance(schema, dict):
        return schema
    out = dict(schema)
    for key in ("properties", "patternProperties", "$defs", "definitions"):
        if isinstance(out.get(key), dict):
            out[key] = {name: opened(value, properties) for name, value in out[key].items()}
    for key in ("items", "additionalProperties"):
        out[key] = opened(out[key], properties) if key in out else None
        if out[key] is None:
            del out[key]
    for key in ("allOf", "anyOf", "oneOf", "prefixItems"):
        if isinstance(out.get(key), list):
            out[key] = [opened(value, properties) for value in out[key]]
    if not {"type", "enum", "const"} & out.keys():
        out["type"] = TYPES
    if properties and {"properties", "patternProperties"} & out.keys():
        out.setdefault("additionalProperties", True)
    if "prefixItems" in out and "unevaluatedItems" not in out:
        out.setdefault("items", True)
    return out


def test_what_is_claimed_holds(engine: NativeEngine, suite: dict[str, list[Case]]) -> None:
    wrong, counts = [], dict.fromkeys(("refused", "named", "valid", "invalid"), 0)
    for name, cases in suite.items():
        for case in cases:
            schema = case["schema"]
            if not isinstance(schema, dict):
                continue  # true and false: a request's schema is an object
            unevaluated = "unevaluated" in json.dumps(schema)
            for form in (schema, opened(schema, properties=not unevaluated)):
                try:
                    named = schema_ignored(form)
                except RequestError as error:
                    assert (error.param or "").startswith("json_schema"), error
                    counts["refused"] += 1
                    continue
                complete = form is not schema and not named and not unevaluated
                complete = complete and (name, case["description"]) not in NARROWER and not name.startswith(FORMS)
                for test in case["tests"]:
                    taken = any(takes(engine, form, text) for text in itertools.islice(texts(test["data"]), 200))
                    if taken != test["valid"] and ((taken and not named) or (complete and not taken)):
                        wrong.append(f"{name}: {case['description']}: {test['description']}: {json.dumps(form)}")
                    counts["named" if named else "valid" if test["valid"] else "invalid"] += 1
    assert not wrong, "\n".join(wrong)
    assert counts["invalid"] > 800
    assert counts["valid"] > 1000
    assert counts["refused"] < 100
    assert counts["named"] < 1750
