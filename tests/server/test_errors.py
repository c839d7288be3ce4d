"""Errors below each owner's paths say what clients of that owner look for: their words, types and codes."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.errors import ComputeError, ContextLengthError, EngineDeadError, QueueFullError, RequestError, again
from dflash_local.server.http_errors import LOADING, UNAUTHORIZED, HTTPError, api_at
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.server.live import Live, live

REPO = Path(__file__).resolve().parents[2]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
TEXT, OWN = "/v1/completions", "/completion"
LONG = "x" * 300  # as many tokens, and more than the context of 256


def test_an_error_that_is_kept_is_raised_as_a_copy() -> None:
    """Else each refusal would keep its frames, and the request in them, for as long as the server runs."""
    gone = HTTPError(404, "gone", code="gone", retry_after=2)
    for kept in (gone, EngineDeadError("dead", hint="start again"), ValueError("a", 1)):
        with pytest.raises(type(kept)) as raised:
            raise again(kept)
        assert raised.value is not kept and kept.__traceback__ is None
        assert (str(raised.value), raised.value.args, vars(raised.value)) == (str(kept), kept.args, vars(kept))


def test_no_error_of_a_module_is_raised_itself() -> None:
    constant = re.compile(r"raise (?:\w+\.)*[A-Z][A-Z_]+(?: or |\b(?!\())|raise self(?:\.\w+)+$", re.MULTILINE)
    for room in ("server", "dflash_local", "convert"):
        for file in (REPO / room).rglob("*.py"):
            assert not constant.search(file.read_text()), file


def body_of(path: str, content: Any) -> dict[str, Any]:
    """A request that says `content`, text or a list of parts."""
    if path in (TEXT, OWN):
        return {"prompt": content}
    name = "input" if path == RESPONSES else "messages"
    return {name: [{"role": "user", "content": content}], **({"max_tokens": 5} if path == MESSAGES else {})}


def refusal(server: Live, path: str, content: Any, **more: Any) -> dict[str, Any]:
    answer = server.http.post(path, json={**body_of(path, content), **more})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


# ---- a prompt that is too long ----


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("length", [250, 300])
def test_claude_code_reads_how_much_too_long_a_prompt_is(server: Live, length: int, stream: bool) -> None:
    error = refusal(server, MESSAGES, "x" * length, stream=stream)
    found = re.match(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", error["message"])
    assert found is not None
    n_prompt, most = map(int, found.groups())
    assert (n_prompt > most == 255) and n_prompt == length + 7  # of the fake's template
    assert error["type"] == "invalid_request_error"


def test_a_prompt_that_nobody_counts_is_at_least_so_long() -> None:
    error = ContextLengthError("m", param="prompt", n_prompt=300, n_ctx=256, counted=False)
    assert (
        api_at(MESSAGES)
        .error(error)[1]["error"]["message"]
        .startswith("prompt is too long: at least 300 tokens > 255 maximum")
    )


@pytest.mark.parametrize(
    ("path", "kind", "param", "words"),
    [
        (CHAT, "invalid_request_error", "messages", ["maximum context length is 256 tokens"]),
        (CHAT, "invalid_request_error", "messages", ["reduce the length of the messages"]),
        ("/chat/completions", "exceed_context_size_error", "prompt", ["maximum context length is 256 tokens"]),
        (RESPONSES, "invalid_request_error", "input", ["exceeds the context window of this model"]),
        (TEXT, "invalid_request_error", "prompt", ["maximum context length is 256 tokens"]),
        (OWN, "exceed_context_size_error", "prompt", ["exceeds the available context size"]),
    ],
)  # fmt: skip
def test_others_read_a_code(server: Live, path: str, kind: str, param: str, words: list[str]) -> None:
    error = refusal(server, path, LONG)
    assert (error["type"], error["code"], error["param"]) == (kind, "context_length_exceeded", param)
    assert all(text in error["message"] for text in words)
    assert error["n_ctx"] == 256 < error["n_prompt_tokens"]


# ---- what the model cannot read ----

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
ASKED = {"type": "text", "text": "what?"}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ([ASKED, IMAGE], "messages.0.content.1.image"),
        ([PDF], "messages.0.content.0.document"),
        (
            [ASKED, {"type": "tool_result", "tool_use_id": "t", "content": [ASKED, IMAGE]}],
            "messages.0.content.1.tool_result.content.1.image",
        ),
    ],
)
def test_claude_code_finds_what_it_must_leave_out(server: Live, content: Any, place: str) -> None:
    error = refusal(server, MESSAGES, content)
    assert error["message"].startswith(f"{place}: Could not process {'PDF' if 'document' in place else 'image'}")
    pattern = (
        r"messages[.[](\d+)[\].]+content[.[](\d+)[\].]+(?:tool_result[.[]content[.[]\d+[\].]+)?(image|document|pdf)"
    )
    found = re.search(pattern, error["message"])
    assert found is not None
    assert found.groups() == ("0", place.split(".")[3], place.rpartition(".")[2])


def test_documents_of_text_are_read(server: Live, native: FakeNative) -> None:
    native.prepared.clear()
    documents = [
        {
            "type": "document",
            "title": "one.txt",
            "source": {"type": "text", "media_type": "text/plain", "data": "first"},
        },
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "second"}]}},
        {"type": "document", "source": {"type": "content", "content": "third"}},
    ]
    server.http.post(MESSAGES, json=body_of(MESSAGES, documents)).raise_for_status()
    assert b"one.txt\nfirst\nsecond\nthird" in bytes(native.prepared[-1].tokens)


def test_codex_leaves_images_out(server: Live) -> None:
    for place in ("content", "output"):
        item = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,x"}]}
        if place == "output":
            item = {"type": "function_call_output", "call_id": "c", "output": item["content"]}
        answer = server.http.post(RESPONSES, json={"input": [item]})
        assert answer.status_code == 400
        assert "The image data you provided does not represent a valid image" in answer.json()["error"]["message"]
        assert answer.json()["error"]["param"] == f"input[0].{place}[0].type"


# ---- types and codes ----

ERRORS: list[tuple[Exception, int, str | None, str]] = [
    # error, status, OpenAI's code, Anthropic's type
    (RequestError("x", param="a[0].b"), 400, "invalid_value", "invalid_request_error"),
    (HTTPError(400, "x", code="invalid_json"), 400, "invalid_json", "invalid_request_error"),
    (UNAUTHORIZED, 401, "invalid_api_key", "authentication_error"),
    (HTTPError(403, "x", code="c"), 403, "c", "permission_error"),
    (HTTPError(404, "x"), 404, None, "not_found_error"),
    (HTTPError(404, "x", code="model_not_found"), 404, "model_not_found", "not_found_error"),
    (HTTPError(408, "x", code="body_timeout"), 408, "body_timeout", "timeout_error"),
    (HTTPError(413, "x", code="body_too_large"), 413, "body_too_large", "request_too_large"),
    (HTTPError(415, "x", code="unsupported_encoding"), 415, "unsupported_encoding", "invalid_request_error"),
    (ComputeError("x"), 500, None, "api_error"),
    (ValueError("x"), 500, None, "api_error"),
    (QueueFullError("x", retry_after=1), 503, "queue_full", "overloaded_error"),
    (LOADING, 503, "loading", "overloaded_error"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "status", "code", "anthropic"), ERRORS)
def test_types_and_codes(error: Exception, status: int, code: str | None, anthropic: str) -> None:
    for path in (CHAT, RESPONSES, TEXT, "/responses", "/v1/embeddings", "/v1/models"):
        got, body = api_at(path).error(error)
        assert (got, body["error"]["code"]) == (status, code)
        assert set(body["error"]) == {"message", "type", "param", "code"}
        if status < 500:
            assert body["error"]["type"] == "invalid_request_error"
    got, body = api_at(MESSAGES + "/count_tokens").error(error)
    assert (got, body["type"], body["error"]["type"]) == (status, "error", anthropic)
    assert set(body["error"]) == {"type", "message"}


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, OWN, "/api/chat"])
def test_compressed_bodies(server: Live, path: str) -> None:
    body = json.dumps(body_of(path, "x")).encode()
    for encoding in ("gzip", "zstd"):
        answer = server.http.post(path, content=gzip.compress(body), headers={"Content-Encoding": encoding})
        error = answer.json()["error"]
        said = error if isinstance(error, str) else error["message"]
        assert answer.status_code == 415
        assert said.startswith(f"Content-Encoding '{encoding}' is not supported")
    for encoding in ("identity", "utf-8"):  # a charset, which some clients name there
        assert server.http.post(path, content=body, headers={"Content-Encoding": encoding}).status_code == 200


def test_words_of_anthropic(server: Live) -> None:
    assert "x-api-key" in api_at(MESSAGES).error(UNAUTHORIZED)[1]["error"]["message"]
    missing = HTTPError(404, "model 'a' not found", code="model_not_found")
    assert api_at(MESSAGES).error(missing)[1]["error"]["message"] == "model: model 'a' not found"
    assert "equest body is not valid JSON" in server.http.post(MESSAGES, content=b"{").json()["error"]["message"]


def test_a_prefix_does_not_choose_the_api() -> None:
    """Below a prefix that is named like an API, each path still has its own API's errors."""
    for prefix in ("/responses", "/v1/messages"):
        with live(lambda _progress: Engine.over(FakeNative(n_ctx_slot=256)), Settings(api_prefix=prefix)) as server:
            own = refusal(server, prefix + OWN, "", prompt=LONG)
            assert (own["type"], own["param"]) == ("exceed_context_size_error", "prompt")
            chat = refusal(server, prefix + CHAT, "", **body_of(CHAT, LONG))
            assert (chat["type"], chat["param"]) == ("invalid_request_error", "messages")


def test_keys_below_each_path() -> None:
    with live(lambda _progress: Engine.over(FakeNative()), Settings(api_keys=("secret",))) as server:
        for path in (CHAT, RESPONSES, MESSAGES, OWN):
            answer = server.http.post(path, json=body_of(path, "x"))
            error = answer.json()["error"]
            assert answer.status_code == 401
            expected = "authentication_error" if path in (MESSAGES, OWN) else "invalid_request_error"
            assert error["type"] == expected
            assert error.get("code", "invalid_api_key") == "invalid_api_key"
