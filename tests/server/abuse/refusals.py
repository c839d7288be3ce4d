"""Requests that must be refused, each with the statuses that it may be refused with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.fuzz.http.client import Request
from tests.fuzz.http.sound import TOOL

from .questions import CHAT, INFILL, MESSAGES, NATIVE, OLLAMA_CHAT, OLLAMA_TEXT, RESPONSES, TEXT

LONG = "one two three " * 1500  # more tokens than a slot's context
USER = [{"role": "user", "content": "hi"}]
JSON_TYPE = ("Content-Type", "application/json")
# Fields of a completion, and of a chat, of the wrong type or out of range.
MISTYPED: tuple[dict[str, Any], ...] = (
    {"temperature": "hot"}, {"temperature": -1}, {"n_predict": [1]}, {"seed": {}}, {"top_k": 2**70}, {"n": 10**9},
    {"stop": [7]}, {"stop": ["a"] * 65}, {"stop": "a" * 2000}, {"grammar": "root ::= ("}, {"samplers": ["magic"]},
    {"logit_bias": {"x": "y"}}, {"stream": "perhaps"}, {"id_slot": 99}, {"budget": 0}, {"budget": 10**6},
    {"draft": "bush"}, {"speculative.n_max": -1}, {"prompt": {"a": 1}}, {"prompt": [10**6]}, {"prompt": [-1]},
    {"n_probs": 101}, {"json_schema": {"type": "nothing"}}, {"prediction": {"type": "content"}}, {"min_tokens": 3},
    {"stop_token_ids": [1]}, {"repeat_last_n": 1e30},
)  # fmt: skip
MISTYPED_IN_CHATS: tuple[dict[str, Any], ...] = (
    {"messages": "hi"}, {"messages": 7}, {"messages": []}, {"messages": [{"role": "king", "content": "x"}]},
    {"messages": [7]}, {"tools": [{}]}, {"tools": "all"}, {"tools": [TOOL], "tool_choice": {"type": "function"}},
    {"response_format": {"type": "poem"}}, {"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 99},
    {"n": 65, "best_of": 66}, {"chat_template": "x"}, {"functions": [{"name": "f"}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
)  # fmt: skip


class Refusal(NamedTuple):
    """A request, and how it may be answered."""

    request: Request
    statuses: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.request.method} {self.request.target} {self.request.body[:80]!r}"


def _post(path: str, body: Any, *statuses: int, **headers: str) -> Refusal:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Refusal(Request("POST", path, raw, (JSON_TYPE, *more)), statuses or (400,))


def _other(method: str, path: str, *statuses: int) -> Refusal:
    return Refusal(Request(method, path, headers=()), statuses)


def _malformed() -> Iterator[Refusal]:
    """Bodies that are no JSON objects."""
    for path in (CHAT, NATIVE, MESSAGES, RESPONSES, OLLAMA_CHAT, "/tokenize"):
        yield _post(path, b'{"prompt": "a", "messages": [')
        yield _post(path, b'{"prompt": "\xff\xfe\xc3"}')
        yield _post(path, b'{"prompt": "\\ud800", "content": "a"}')
        yield _post(path, b"[1, 2]")
        yield _post(path, b"")
    yield _post(NATIVE, b"[" * 100_000)
    yield _post(NATIVE, b'{"a":' * 100_000)
    yield _post(NATIVE, b'{"prompt": "a", "n_predict": ' + b"1" * 5000 + b"}")
    yield _post(NATIVE, b'{"prompt": "a", "temperature": NaN}')
    yield _post(NATIVE, b'{"prompt": "a"}' * 2)


def _mistyped() -> Iterator[Refusal]:
    """Fields of the wrong type, or out of range."""
    for fields in MISTYPED:
        yield _post(NATIVE, {"prompt": "a", "n_predict": 1, **fields})
    for fields in MISTYPED_IN_CHATS:
        yield _post(CHAT, {"messages": USER, "max_tokens": 1, **fields})
    yield _post(TEXT, {"prompt": "a", "echo": True, "suffix": "b"})
    yield _post(TEXT, {"prompt": "a", "prompt_logprobs": 1})
    yield _post(INFILL, {"input_prefix": 7, "input_suffix": "a"}, 400, 501)
    yield _post(MESSAGES, {"messages": USER, "thread": {"type": "create"}})
    yield _post(RESPONSES, {"input": 7})
    yield _post(RESPONSES, {"input": "hi", "previous_response_id": "resp_1"})
    yield _post(RESPONSES, {"input": "hi", "background": True})
    yield _post(RESPONSES, {"input": [{"type": "item_reference", "id": "a"}]})
    yield _post(OLLAMA_CHAT, {"messages": 1})
    yield _post(OLLAMA_TEXT, {"prompt": 1})
    yield _post("/tokenize", {"content": 5})
    yield _post("/detokenize", {"tokens": [10**9]})
    yield _post("/detokenize", {"tokens": [-1]})
    yield _post("/v1/embeddings", {"input": []})
    yield _post("/v1/embeddings", {"input": "a cat", "dimensions": 7})
    yield _post("/v1/rerank", {"query": "a"})


def _too_long() -> Iterator[Refusal]:
    """Prompts that do not fit, and a body that cannot come."""
    chat = [{"role": "user", "content": LONG}]
    yield _post(CHAT, {"messages": chat})
    yield _post(CHAT, {"messages": chat, "stream": True})
    yield _post(TEXT, {"prompt": LONG, "stream": True})
    yield _post(NATIVE, {"prompt": LONG})
    yield _post(NATIVE, {"prompt": [5] * 5000})
    yield _post(MESSAGES, {"messages": chat, "max_tokens": 5})
    yield _post(RESPONSES, {"input": LONG})
    yield _post(RESPONSES, {"input": LONG, "stream": True}, 200)  # in the stream, for Codex
    yield _post(OLLAMA_CHAT, {"messages": chat})
    yield _post(OLLAMA_TEXT, {"prompt": LONG})
    yield _post("/v1/embeddings", {"input": "a cat " * 500})
    yield _post(NATIVE, {"prompt": "a", "prediction": {"type": "content", "content": LONG}})
    yield _post(NATIVE, b"{}", 413, Content_Length=str(10**12))


def _elsewhere() -> Iterator[Refusal]:
    """Paths, methods and names that are not there, what is not supported, and strangers."""
    for path in (CHAT, NATIVE, MESSAGES, RESPONSES, "/tokenize", OLLAMA_CHAT):
        yield _other("GET", path, 405)
        yield _other("PUT", path, 405)
    yield _other("DELETE", "/v1/models", 405)
    yield _other("GET", "/nowhere", 404)
    yield _other("GET", "/v1/models/nothing", 404)
    yield _other("GET", "/page/nothing", 404)
    yield _other("GET", f"{RESPONSES}/resp_1", 404)
    yield _other("DELETE", f"{RESPONSES}/resp_1", 404)
    yield _other("POST", f"{RESPONSES}/resp_1/cancel", 404)
    yield _other("GET", f"{RESPONSES}/resp_1/input_items", 404)
    yield _post(f"{RESPONSES}/compact", {}, 404)
    yield _post("/api/show", {"model": "nothing"}, 404)
    yield _other("GET", "/v1/stream", 400)
    yield _other("GET", "/v1/stream?conv_id=nobody", 404)
    yield _other("GET", "/v1/stream?conv_id=nobody&from=x", 400)
    yield _post("/v1/streams/lookup", {"conversation_ids": 7})
    yield _post(f"{CHAT}/control", {"id": "a", "action": "sing"})
    for query in ("0?action=forget", "99?action=erase", "-1?action=erase", "0?action=save"):
        yield _post(f"/slots/{query}", {})
    yield _post("/slots/0?action=save", {"filename": "../a"})
    yield _post("/slots/0?action=restore", {"filename": "none"})
    for path in ("/props", "/lora-adapters", "/api/pull", "/api/delete", "/v1/audio/transcriptions", "/tools"):
        yield _post(path, {}, 501)
    yield _post(NATIVE, {"prompt": "a"}, 403, Origin="http://evil.example")
    yield _post(NATIVE, {"prompt": "a"}, 403, Host="evil.example")


REFUSALS = (*_malformed(), *_mistyped(), *_too_long(), *_elsewhere())

# Odd, but nothing is wrong with them that must be refused: either is right.
ODDITIES: tuple[dict[str, Any], ...] = (
    {"temperature": 1e308},
    {"temperature": 1e-300, "top_p": 1e-300},
    {"seed": 2**64},
    {"repeat_penalty": 1e30},
    {"n_predict": 2**40, "stop": ["e", "a"]},
    {"n_predict": 0},
    {"min_keep": 2**31 - 1},
    {"dry_multiplier": 1e9, "dry_sequence_breakers": ["\0"]},
    {"grammar": 'root ::= "a"{1,99999}'},
    {"json_schema": {"type": "string", "pattern": "^(a{1,50}){1,50}$"}},
    {"json_schema": {"$ref": "#"}},
    {"logit_bias": {str(token): -100 for token in range(400)}},
    {"nonsense": {"a": [1]}, "more nonsense": None},
    {"prompt": "\0\ufffd\u202e\U0001f600" * 20},
    {"prompt": ""},
    {"prompt": []},
    {"samplers": []},
    {"t_max_predict_ms": 1, "n_indent": 3},
    {"n_probs": 100},
    {"sse_ping_interval": 1, "return_progress": True, "timings_per_token": True},
)
