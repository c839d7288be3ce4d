"""The published document: every route is in it, and real requests and answers are what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route

from dflash_local.engine import Engine
from dflash_local.server import docs
from dflash_local.server.app import create_app
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.embeddings.options import ModelOptions
from dflash_local.server.routes.endpoint import Endpoint
from dflash_local.server.settings import Settings
from tests.fake_native import CONTROL, EOG, MARKER, SEES_AND_HEARS, FakeNative
from tests.media.samples import data_url, png, text_of, wav
from tests.server import encoders
from tests.server.live import Live, live

MESSAGES: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
IMAGE: Any = {"type": "image_url", "image_url": {"url": data_url(png())}}
AUDIO: Any = {"type": "input_audio", "input_audio": {"data": text_of(wav()), "format": "wav"}}
HIDDEN = {"/", "/docs", "/docs/assets", "/openapi.json"}  # pages for people, and the document itself

# Bodies for every POST endpoint; all kinds of answers.
REQUESTS: dict[str, list[dict[str, Any]]] = {
    "/v1/streams/lookup": [{"conversation_ids": ["a", "b"]}],
    "/v1/chat/completions": [
        {"messages": MESSAGES, "n": 2, "seed": 1, "max_completion_tokens": 3},
        {"messages": [{"role": "user", "content": "call"}], "tools": TOOLS},
        {"messages": [{"role": "user", "content": [IMAGE, {"type": "text", "text": "hi"}, AUDIO]}]},
    ],
    "/v1/completions": [{"prompt": "x", "max_tokens": 3}, {"prompt": ["x", [1, 2]], "stop": ["l"], "suffix": "y"}],
    "/completion": [
        {"prompt": "x", "n_predict": 3},
        {"prompt": ["x", "y"]},
        {"prompt": {"prompt_string": MARKER, "multimodal_data": [text_of(png())]}},
    ],
    "/v1/messages": [
        {"messages": MESSAGES, "max_tokens": 3},
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "call"}]}],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "auto"},
            "thinking": {"type": "enabled", "budget_tokens": 9},
            "max_tokens": 90,
        },
    ],
    "/v1/messages/count_tokens": [{"messages": MESSAGES, "system": "be"}],
    "/v1/responses": [
        {"input": "hi", "max_output_tokens": 3, "metadata": {"a": "b"}},
        {
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "call"}]}],
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            "text": {"format": {"type": "text"}},
            "reasoning": {"effort": "low"},
        },
    ],
    "/v1/responses/input_tokens": [{"input": "hi"}],
    "/v1/chat/completions/input_tokens": [{"messages": MESSAGES}],
    "/v1/chat/completions/control": [{"id": "chatcmpl-1", "action": "reasoning_end"}],
    "/infill": [
        {"input_prefix": "a", "input_suffix": "b", "n_predict": 3},
        {"input_prefix": "a", "input_suffix": "b", "prompt": "x", "input_extra": [{"text": "c", "filename": "d"}]},
    ],
    "/tokenize": [{"content": "hi"}, {"content": "hi", "with_pieces": True}],
    "/detokenize": [{"tokens": [104]}],
    "/apply-template": [{"messages": MESSAGES}],
    "/v1/embeddings": [{"input": ["a cat", [5]]}, {"input": "a cat", "encoding_format": "base64", "user": "me"}],
    "/embedding": [{"content": "a cat", "embd_normalize": 1}],
    "/v1/rerank": [
        {"query": "a cat", "documents": ["a", {"text": "cat"}], "top_n": 1, "return_documents": True},
        {"query": "a cat", "texts": ["a", "cat"], "return_text": True},
    ],
    "/api/chat": [
        {"messages": MESSAGES, "options": {"num_predict": 3, "seed": 1}, "logprobs": True, "stream": False},
        {"messages": [{"role": "user", "content": "call"}], "tools": TOOLS, "think": True, "stream": False},
        {"model": "dflash-local", "stream": False},
    ],
    "/api/generate": [
        {"prompt": "x", "system": "be", "format": "json", "keep_alive": "5m", "stream": False},
        {"prompt": "x", "suffix": "y", "stream": False},
    ],
    "/api/embed": [{"model": "tiny-bert", "input": ["a cat", "a dog"], "truncate": True}],
    "/api/embeddings": [{"model": "tiny-bert", "prompt": "a cat"}],
    "/api/show": [{"model": "tiny-bert"}, {"name": "dflash-local", "verbose": False}],
}
STREAMED = ("/v1/chat/completions", "/v1/completions", "/completion", "/infill", "/v1/messages", "/v1/responses")
LINES = ("/api/chat", "/api/generate")  # streamed as such
FIM = {"fim_pre": 1, "fim_suf": 2, "fim_mid": 3}


def script(prompt: bytes) -> list[list[int]]:
    if b"call" in prompt:
        return [[*b"<think>hm</think>ok"], [CONTROL, *b'{"a"'], [*b": 1}", EOG]]
    return [[*b"h"], [*b"ello"], [EOG]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("encoders")
    bert = encoders.write_bert(folder / "bert.gguf", encoders.weights())
    ranker = encoders.write_bert(folder / "ranker.gguf", encoders.weights(rerank=True))
    settings = Settings(
        embedding=ModelOptions(str(bert), "tiny-bert"), rerank=ModelOptions(str(ranker), "tiny-ranker", pooling="rank")
    )
    native = FakeNative(script, n_slots=2, info=FIM | SEES_AND_HEARS)
    with live(lambda _progress: Engine.over(native), settings) as running:
        yield running


@pytest.fixture(scope="module")
def document(server: Live) -> dict[str, Any]:
    document: dict[str, Any] = server.http.get("/openapi.json").json()
    return document


@pytest.fixture(scope="module")
def app() -> DocumentedApp:
    return create_app(lambda _: Engine.over(FakeNative()))


def check(document: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def answer_schema(document: dict[str, Any], path: str, method: str, kind: str = "application/json") -> dict[str, Any]:
    content = document["paths"][path][method]["responses"]["200"]["content"][kind]
    schema: dict[str, Any] = (
        content["itemSchema"]["properties"]["data"]["contentSchema"] if "itemSchema" in content else content["schema"]
    )
    return schema


def test_every_route_is_documented(document: dict[str, Any], app: DocumentedApp) -> None:
    routes = {
        (getattr(route, "path_format", route.path), method.lower())
        for route in app.routes
        if isinstance(route, Route) and route.path not in HIDDEN and route.include_in_schema
        for method in route.methods or ()
    }
    documented = {(path, method) for path, item in document["paths"].items() for method in item}
    assert {(path, method) for path, method in routes if method != "head"} == documented
    for path, method in documented:
        operation = document["paths"][path][method]
        assert operation["description"]
        assert ("requestBody" in operation) == (method == "post")
        own = {"/v1/messages": "MessageError", "/api/": "OllamaError"}
        error = next((kind for root, kind in own.items() if path.startswith(root)), "ErrorAnswer")
        assert error in json.dumps(operation["responses"]["4XX"])


def test_every_endpoint_is_tried(app: DocumentedApp) -> None:
    reading = {route.handler for route in app.routes if isinstance(route, Endpoint) and route.reads}
    tried = {route.handler for route in app.routes if isinstance(route, Endpoint) and route.path in REQUESTS}
    assert reading == tried
    streaming = {route.path for route in app.routes if isinstance(route, Endpoint) and route.event}
    assert {*STREAMED, *LINES} <= streaming


def test_every_field_has_a_description(document: dict[str, Any], app: DocumentedApp) -> None:
    read = {route.reads for route in app.routes if isinstance(route, Endpoint) and route.reads}
    for model in read:
        for name, field in document["components"]["schemas"][model.__name__]["properties"].items():
            assert field.get("description"), f"{model.__name__}.{name}"


@pytest.mark.parametrize(("path", "body"), [(path, body) for path, bodies in REQUESTS.items() for body in bodies])
def test_requests_and_answers_are_as_published(
    server: Live, document: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    request = document["paths"][path]["post"]["requestBody"]
    assert request["required"]
    check(document, request["content"]["application/json"]["schema"], body)
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200
    check(document, answer_schema(document, path, "post"), answer.json())
    if path in STREAMED:
        text = server.http.post(path, json={**body, "stream": True, "stream_options": {"include_usage": True}}).text
        events = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: {")]
        schema = answer_schema(document, path, "post", "text/event-stream")
        assert events
        for event in events:
            check(document, schema, json.loads(event))
    if path in LINES:
        text = server.http.post(path, json={**body, "stream": True}).text
        schema = document["paths"][path]["post"]["responses"]["200"]["content"]["application/x-ndjson"]["itemSchema"]
        for line in text.splitlines():
            check(document, schema, json.loads(line))


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/props", "/slots", "/api/version", "/api/tags", "/api/ps"])
def test_facts_are_as_published(server: Live, document: dict[str, Any], path: str) -> None:
    check(document, answer_schema(document, path, "get"), server.http.get(path).json())


def test_errors_are_as_published(server: Live, document: dict[str, Any]) -> None:
    for path, body in (
        ("/v1/chat/completions", {}),
        ("/completion", {"prompt": "x" * 5000}),
        ("/tokenize", []),
        ("/v1/messages", {"thread": {"type": "create"}}),
        ("/v1/responses", {}),
        ("/api/chat", {"messages": 1}),
    ):
        answer = server.http.post(path, json=body)
        assert answer.status_code == 400
        error = document["paths"][path]["post"]["responses"]["4XX"]["content"]["application/json"]["schema"]
        check(document, error, answer.json())


def test_the_schema_notices_a_field_that_nobody_documented(document: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check(document, answer_schema(document, "/detokenize", "post"), {"content": "x", "more": 1})


def test_the_page_shows_all_of_it_without_the_network(
    server: Live, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs, "swagger_assets", lambda: None)
    with live(lambda _progress: Engine.over(FakeNative()), Settings(api_keys=("secret",))) as server:
        text = server.http.get("/docs").raise_for_status().text
    assert "http://" not in text
    assert "https://" not in text
    assert "<script" not in text
    for path in document["paths"]:
        assert path in text
    for name in ("repeat_penalty", "min_p", "ChatCompletionChunk", "usage"):
        assert name in text


def test_swagger_ui_comes_from_the_server_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "swagger-ui-bundle.js").write_text("the bundle")
    monkeypatch.setattr(docs, "swagger_assets", lambda: tmp_path)
    with live(lambda _progress: Engine.over(FakeNative())) as server:
        text = server.http.get("/docs").raise_for_status().text
        assert "http" not in text
        assert 'src="docs/assets/swagger-ui-bundle.js"' in text
        assert server.http.get("/docs/assets/swagger-ui-bundle.js").text == "the bundle"
