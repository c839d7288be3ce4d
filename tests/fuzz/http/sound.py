"""Sound requests to every endpoint: what the mutations start from, and the witnesses.

Endpoints are read from the app. One that is not named here joins by itself, with a body that has a little of
everything.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.routing import Route

from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.routes.absent import ABSENT

from .published import Published

Json = Any
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
}
FUNCTION = {"name": "get_weather", "description": "Weather", "parameters": CITY}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Lisbon"}'}}
QUESTION = "What is 48 plus 24?"
SAMPLING = {
    "temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "typical_p": 1.0, "seed": 3, "repeat_penalty": 1.1,
    "repeat_last_n": 64, "presence_penalty": 0.1, "frequency_penalty": 0.1, "dry_multiplier": 0.5, "dry_base": 1.75,
    "dry_sequence_breakers": ["\n", ":"], "xtc_probability": 0.1, "xtc_threshold": 0.1, "mirostat": 0,
    "samplers": ["top_k", "temperature"], "logit_bias": {"5": -1.5}, "ignore_eos": True, "stop": ["\n\n", "###"],
    "dynatemp_range": 0.1, "dynatemp_exponent": 1.0, "top_n_sigma": -1.0, "min_keep": 0, "cache_prompt": True,
}  # fmt: skip
STREAMED = {"stream": True, "stream_options": {"include_usage": True}, "timings_per_token": True}

CHATS: list[Json] = [
    {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 3, "temperature": 0},
    {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 2, **SAMPLING, **STREAMED},
    {
        "model": "pocket", "max_completion_tokens": 2, "tools": [TOOL], "tool_choice": "auto",
        "parallel_tool_calls": True, "reasoning_effort": "low", "n": 2, "user": "me", "metadata": {"a": "b"},
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": [{"type": "text", "text": "Weather in Lisbon?"}]},
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
    },
    {
        "messages": [{"role": "user", "content": "Write JSON."}], "max_tokens": 4,
        "response_format": {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}},
        "logprobs": True, "top_logprobs": 2, "chat_template_kwargs": {"enable_thinking": False},
        "reasoning_format": "auto", "prediction": {"type": "content", "content": "{}"}, "return_progress": True,
    },
    {
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "stream": True, "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "sse_ping_interval": 1,
        "grammar_lazy": False, "thinking_budget_tokens": 5, "id_slot": 0, "n_probs": 2, "add_generation_prompt": True,
    },
]  # fmt: skip
TEXTS: list[Json] = [
    {"prompt": "One, two,", "max_tokens": 3, "temperature": 0},
    {"prompt": ["One", [11, 12, 13], "two"], "max_tokens": 1, "n": 1, "echo": True, **SAMPLING},
    {"prompt": "a b c", "max_tokens": 2, "suffix": "d e", "logprobs": 2, "stream": True},
    {"prompt": "One", "n_predict": 2, "grammar": 'root ::= "a" [b-z]{1,4}', "n_probs": 3, "post_sampling_probs": True},
    {
        "prompt": {"prompt_string": "One"}, "n_predict": 2, "json_schema": CITY, "return_tokens": True,
        "response_fields": ["content", "timings/prompt_n"], "n_keep": 1, "t_max_predict_ms": 50, "n_indent": 0,
        "speculative.n_max": 4, "id_slot": -1, "guided_choice": ["a", "b"], "min_tokens": 0,
    },
]  # fmt: skip
MESSAGES: list[Json] = [
    {"model": "m", "max_tokens": 3, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0},
    {
        "model": "m", "max_tokens": 2, "stream": True, "stop_sequences": ["\n"], "metadata": {"user_id": "1"},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "get_weather", "description": "Weather", "input_schema": CITY}],
        "tool_choice": {"type": "auto"}, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Lisbon"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]},
            ]},
        ],
    },
]  # fmt: skip
RESPONSES: list[Json] = [
    {"model": "m", "input": QUESTION, "max_output_tokens": 3, "temperature": 0},
    {
        "model": "m", "instructions": "Be brief.", "max_output_tokens": 2, "stream": True,
        "tools": [{"type": "function", **FUNCTION, "strict": True}, {"type": "web_search"}], "tool_choice": "auto",
        "reasoning": {"effort": "low", "summary": "auto"}, "parallel_tool_calls": False, "store": False,
        "text": {"format": {"type": "json_schema", "name": "city", "schema": CITY}}, "include": [],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
        ],
    },
]  # fmt: skip
EMBEDDINGS: list[Json] = [
    {"input": "One, two", "encoding_format": "float", "model": "m"},
    {"input": ["One", [11, 12], {"prompt_string": "two"}], "encoding_format": "base64", "dimensions": 8, "user": "me"},
    {"content": "One", "embd_normalize": 2},
]
RERANK: list[Json] = [
    {"query": "numbers", "documents": ["One", "two"], "top_n": 1, "model": "m", "return_text": True},
    {"query": "numbers", "texts": ["One", {"text": "two"}]},
]
INFILL: list[Json] = [
    {
        "input_prefix": "def f(", "input_suffix": "    return 1", "n_predict": 2, "prompt": "x",
        "input_extra": [{"filename": "a.py", "text": "x = 1"}], "temperature": 0, "stream": True,
    },
]  # fmt: skip
# Paths without a leading /v1, api prefixes and trailing names of aliases: the last parts decide.
BODIES: dict[str, list[Json]] = {
    "chat/completions": CHATS,
    "chat/completions/input_tokens": CHATS,
    "chat/completions/control": [{"id": "chatcmpl-1", "action": "reasoning_end"}],
    "apply-template": CHATS,
    "completions": TEXTS,
    "completion": TEXTS,
    "messages": MESSAGES,
    "messages/count_tokens": MESSAGES,
    "responses": RESPONSES,
    "responses/input_tokens": RESPONSES,
    "embeddings": EMBEDDINGS,
    "embedding": EMBEDDINGS,
    "rerank": RERANK,
    "reranking": RERANK,
    "infill": INFILL,
    "streams/lookup": [{"conversation_ids": ["a", "b"]}],
    "tokenize": [
        {"content": "One, two", "with_pieces": True, "add_special": True, "parse_special": False},
        {"content": ["One", 12, "two"]},
    ],
    "detokenize": [{"tokens": [11, 12, 13]}],
    "slots/{id_slot}": [{"filename": "a.bin"}, {}],
    "models/load": [{"model": "pocket"}],
    "models/unload": [{"model": "pocket"}],
    "lora-adapters": [[{"id": 0, "scale": 0.5}]],
    "props": [{"default_generation_settings": {}}],
}
ANYTHING: Json = {**CHATS[1], **TEXTS[0], **EMBEDDINGS[0], **RERANK[0], "tokens": [1], "filename": "a", "id": "x"}
QUERIES = ["", "action=save", "action=restore", "action=erase", "fail_on_no_slot=1", "model=pocket", "from=0", "slot=0"]
PARAMETERS = ["0", "1", "-1", "99", "99999999999999999999", "a", "pocket", "a%2Fb", "%00", "..", "%E2%80%A8", ""]


@dataclass(frozen=True)
class Sound:
    """An endpoint with bodies that it knows; None: it takes none."""

    method: str
    path: str
    bodies: tuple[Json, ...]
    published: Published = field(default_factory=Published)

    def filled(self, value: str) -> str:
        """The path with `value` for each parameter."""
        return re.sub(r"\{[^}]*\}", lambda _: value, self.path)


def endpoints(app: DocumentedApp) -> list[Sound]:
    """All endpoints of the app, but for those that are there to say that they are not."""
    found, document = [], app.document
    for route in app.routes:
        if isinstance(route, Route) and route.path not in ABSENT:
            for method in sorted(route.methods or ()):
                bodies = _bodies(route.path) if method in ("POST", "PUT", "PATCH") else [None]
                published = Published.of(document, route.path, method)
                found.append(Sound(method, route.path, tuple(copy.deepcopy(bodies)), published))
    assert len(found) > 10
    return found


def _bodies(path: str) -> list[Json]:
    name = re.sub(r"\{[^}]*\}", "{id_slot}", path.strip("/")).removeprefix("v1/")
    return BODIES.get(name, [ANYTHING])


def field_names(endpoints: Sequence[Sound]) -> list[str]:
    """Every name of a field that is published, or is in any sound body, at any depth."""
    names = {name for endpoint in endpoints for name in endpoint.published.fields}

    def walk(value: Json) -> None:
        if isinstance(value, dict):
            names.update(value)
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    for endpoint in endpoints:
        for body in endpoint.bodies:
            walk(body)
    return sorted(names)


def witnesses() -> dict[str, Json]:
    """Requests with one right answer, by path; those of endpoints that the server lacks are not asked."""
    greedy = {"temperature": 0, "cache_prompt": False}
    chat = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 12, **greedy}
    return {
        "/v1/chat/completions": chat,
        "/v1/completions": {"prompt": "One, two,", "max_tokens": 12, **greedy},
        "/completion": {"prompt": "One, two,", "n_predict": 12, **greedy},
        "/v1/messages": {**CHATS[0], "max_tokens": 12, "model": "m"},
        "/v1/responses": {"input": QUESTION, "max_output_tokens": 12, "temperature": 0},
        "/v1/embeddings": EMBEDDINGS[0],
        "/tokenize": {"content": json.dumps(CITY)},
    }
