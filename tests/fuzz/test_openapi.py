"""schemathesis: requests made from the published document, answers held to it.

Answers to what the schema allows must be what it says; what it does not allow must be refused.
"""

from __future__ import annotations

import copy
from typing import Any

import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, CheckContext, GenerationMode, Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dflash_local.server.app import create_app
from tests.fuzz.conftest import OFF

DOCUMENT: dict[str, Any] = create_app(lambda _: None).document  # type: ignore[arg-type, return-value]
PATHS = DOCUMENT["paths"]
# An alias has the handler of its /v1 path.
OPERATIONS = [(method.upper(), path) for path, item in PATHS.items() for method in item if f"/v1{path}" not in PATHS]
SECONDS = 120
# Nothing is generated: fields that say how are published, for whoever sends the body of the other endpoint, and not
# looked at.
NO_ANSWER = ("/apply-template", "/input_tokens", "/count_tokens")
# The schema lets these be anything that is one; in half of the bodies they are sound, so that more than their check is
# reached.
SOUND: dict[str, Any] = {
    "messages": [{"role": "user", "content": "One, two,"}],
    "prompt": "One, two,",
    "input": "One, two,",
    "input_prefix": "One, two,",
    "documents": ["One", "two"],
}


def one_name_each() -> dict[str, Any]:
    """The document without second names of fields: of two names for one field only the first is looked at, and the
    other, right or wrong, is told in a header."""
    document = copy.deepcopy(DOCUMENT)
    for schema in document["components"]["schemas"].values():
        fields = schema.get("properties", {})
        for name in [name for name, about in fields.items() if about.get("description", "").startswith("Another name")]:
            del fields[name]
    return document


def no_fault(_context: CheckContext, response: Response, case: Case[Any]) -> None:
    """No 5xx but a 503 that says when to come back, and a 501 of what is off."""
    if response.status_code == 503:
        assert "retry-after" in response.headers, "503 without Retry-After"
    elif response.status_code != 501 or case.path not in OFF:
        assert response.status_code < 500, f"{response.status_code}: {response.text[:300]}"


ANSWERS = [
    no_fault,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_answers_are_as_published(server: tuple[psutil.Process, str], method: str, path: str, count: int) -> None:
    document = schemathesis.openapi.from_dict(DOCUMENT)
    _fire(document[path][method].as_strategy(generation_mode=GenerationMode("positive")), server[1], count, ANSWERS)


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path in OPERATIONS if method == "POST"])
def test_what_the_schema_forbids_is_refused(
    server: tuple[psutil.Process, str], method: str, path: str, count: int
) -> None:
    document = schemathesis.openapi.from_dict(one_name_each())
    strategy = document[path][method].as_strategy(generation_mode=GenerationMode("negative"))
    _fire(strategy, server[1], count, ANSWERS + [negative_data_rejection] * (not path.endswith(NO_ANSWER)))


def _fire(strategy: Any, url: str, count: int, checks: list[Any]) -> None:
    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, sound=st.booleans())
    def fire(case: Case[Any], sound: bool) -> None:
        if sound and isinstance(case.body, dict) and negative_data_rejection not in checks:
            case.body |= {name: value for name, value in SOUND.items() if name in case.body}
        case.call_and_validate(base_url=url, checks=checks, timeout=SECONDS)

    fire()
