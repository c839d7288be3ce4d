"""What becomes of each name in a request's body: read, mapped, harmless, refused, or told to the client."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.errors import RequestError
from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.completion import CompletionRequest
from dflash_local.server.fields.fields import ignored_header
from dflash_local.server.fields.request import Defaults, parse_fields
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.server.live import Live, live

MESSAGES: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def native() -> FakeNative:
    return FakeNative(b"hello")


@pytest.fixture(scope="module")
def server(native: FakeNative) -> Iterator[Live]:
    with live(lambda _progress: Engine.over(native)) as running:
        yield running


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.of({"messages": MESSAGES, **fields})


def test_every_sampling_field_is_read_under_its_name() -> None:
    assert ChatRequest.model_fields.keys() >= SAMPLING_FIELDS
    texts = {spec.name for spec in fields(SamplingParams) if spec.metadata.get("schema") == {"type": "string"}}
    sent: dict[str, Any] = {name: "1" if name in texts else 1 for name in SAMPLING_FIELDS}
    assert chat(**sent).given() == {"messages": MESSAGES, **sent}


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"repetition_penalty": 1.5}, {"repeat_penalty": 1.5}),
        ({"typ_p": 0.5}, {"typical_p": 0.5}),
        ({"thinking_budget_tokens": 7}, {"reasoning_budget_tokens": 7}),
        ({"num_predict": 7}, {"max_tokens": 7}),
        ({"max_tokens": 1, "max_completion_tokens": 1, "n_predict": 1}, {"max_tokens": 1}),
        ({"n_cmpl": 2}, {"n": 2}),
        ({"guided_json": {"type": "null"}}, {"json_schema": {"type": "null"}}),
        ({"guided_json": '{"type": "null"}'}, {"json_schema": {"type": "null"}}),
        ({"guided_choice": ["a", 'b"\\\n']}, {"grammar": r'root ::= "a" | "b\"\\\n"'}),
        ({"guided_grammar": "root ::= [a]"}, {"grammar": "root ::= [a]"}),
        ({"structured_outputs": {"json": {}}}, {"json_schema": {}}),
        ({"structured_outputs": {"json_object": True}}, {"json_schema": {"type": "object"}}),
        ({"structured_outputs": {"choice": ["a"], "regex": None}}, {"grammar": 'root ::= "a"'}),
        ({"structured_outputs": {"grammar": "root ::= [a]"}}, {"grammar": "root ::= [a]"}),
        ({"format": "json"}, {"json_schema": {"type": "object"}}),
        ({"format": {"type": "null"}}, {"json_schema": {"type": "null"}}),
        ({"options": {"num_predict": 3, "top_k": 2}}, {"max_tokens": 3, "top_k": 2}),
        ({"think": False}, {"enable_thinking": False}),
        ({"think": "low"}, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}},
         {"enable_thinking": True, "reasoning_budget_tokens": 5}),
        ({"reasoning": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"reasoning": {"enabled": False, "max_tokens": 9}}, {"enable_thinking": False, "reasoning_budget_tokens": 9}),
        ({"user": "me", "metadata": {}, "store": True, "keep_alive": "5m"}, {}),
        ({"min_tokens": 0, "stop_token_ids": [], "echo": False, "temperature": None}, {}),
        *(({name: ""}, {}) for name in (
            "grammar", "grammar_type", "grammar_triggers", "preserved_tokens", "json_schema", "guided_json",
            "guided_grammar", "guided_choice", "structured_outputs", "logit_bias", "dry_sequence_breakers", "stop",
            "stream_options", "prediction", "options", "format", "tools", "response_format", "chat_template_kwargs",
            "thinking", "reasoning", "guided_regex", "lora", "functions", "documents", "audio")),
        *(({name: []}, {}) for name in (
            "stop", "stream_options", "prediction", "guided_choice", "structured_outputs", "options", "tools",
            "response_format", "chat_template_kwargs", "thinking", "reasoning", "lora", "functions", "modalities")),
        *(({name: {}}, {}) for name in (
            "stream_options", "structured_outputs", "options", "response_format",
            "chat_template_kwargs", "thinking", "reasoning", "audio", "web_search_options")),
        ({"structured_outputs": {"json": "", "choice": [], "grammar": None}}, {}),
        ({"options": {"stop": [], "grammar": ""}}, {}),
        ({"reasoning_effort": "", "model": ""}, {"reasoning_effort": "", "model": ""}),
    ],
)  # fmt: skip
def test_other_names_mean_the_same(sent: dict[str, Any], read: dict[str, Any]) -> None:
    body = chat(**sent)
    assert body.given() == {"messages": MESSAGES, **read}
    assert body.ignored == []


@pytest.mark.parametrize(
    ("sent", "ignored"),
    [
        ({"zeal": 1}, ["zeal"]),
        ({"zeal": None}, []),
        ({"stream_options": {"include_usage": True, "zeal": 1}}, ["stream_options.zeal"]),
        ({"options": {"num_ctx": 4096, "top_k": 1}}, ["options.num_ctx"]),
        ({"options": {"options": {"top_k": 1}}}, ["options.options"]),
        ({"reasoning": {"effort": "low", "exclude": True}}, ["reasoning.exclude"]),
        ({"structured_outputs": {"choice": ["a"], "zeal": 1}}, ["structured_outputs.zeal"]),
        # Two names of one field: the loser is told.
        ({"max_tokens": 5, "n_predict": 9}, ["max_tokens"]),
        ({"n_predict": 9, "max_tokens": 5}, ["max_tokens"]),
        ({"repetition_penalty": 2, "repeat_penalty": 1.5}, ["repetition_penalty"]),
        ({"options": {"top_k": 1}, "top_k": 2}, ["options.top_k"]),
        ({"reasoning": {"effort": "low", "max_tokens": 9}, "thinking_budget_tokens": 8}, ["reasoning.max_tokens"]),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 9}, "reasoning_budget_tokens": 8},
            ["thinking.budget_tokens"],
        ),
    ],
)
def test_what_changes_nothing_is_told(sent: dict[str, Any], ignored: list[str]) -> None:
    assert chat(**sent).ignored == ignored
    if ignored:
        with pytest.raises(RequestError) as caught:
            ChatRequest.of({"messages": MESSAGES, **sent}, strict=True)
        assert caught.value.param == ignored[0]
    assert chat(max_tokens=5, n_predict=9, repetition_penalty=2, repeat_penalty=1.5).given() == {
        "messages": MESSAGES, "max_tokens": 9, "repeat_penalty": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "sent",
    [
        {"min_tokens": 3},
        {"stop_token_ids": [3]},
        {"bad_words": ["x"]},
        {"allowed_token_ids": [3]},
        {"prompt_logprobs": 1},
        {"guided_regex": "a+"},
        {"guided_json": "{"},
        {"guided_json": '{"enum": ["\\ud800"]}'},
        {"guided_json": '{"minimum": NaN}'},
        {"guided_choice": [""]},
        {"guided_choice": "a"},
        {"structured_outputs": {"regex": "a+"}},
        {"structured_outputs": 3},
        {"use_beam_search": True},
        {"length_penalty": 2},
        {"web_search_options": {"a": 1}},
        {"lora": [{"id": 0, "scale": 1}]},
        {"format": "xml"},
        {"options": [1]},
        {"thinking": {"type": "loud"}},
        {"reasoning": True},
        {"skip_special_tokens": False},
        {"modalities": ["audio"]},
    ],
)
def test_what_cannot_be_granted_is_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        chat(**sent)
    name = next(iter(sent))
    assert caught.value.param == name
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("sent", "param", "text"),
    [
        ({"max_tokens": "x"}, "max_tokens", "max_tokens must be an integer, got 'x'"),
        ({"n_predict": -2}, "n_predict", "n_predict must be at least -1, got -2"),
        ({"stream": 1}, "stream", "stream must be true or false, got 1"),
        ({"stop": [3]}, "stop", "stop must be a string or a list of strings, got [3]"),
        ({"chat_template_kwargs": 3}, "chat_template_kwargs", "chat_template_kwargs must be an object, got 3"),
        ({"stream_options": {"include_usage": "x"}}, "stream_options.include_usage",
         "stream_options.include_usage must be true or false, got 'x'"),
        ({"options": {"num_predict": "x"}}, "options.num_predict", "options.num_predict must be an integer, got 'x'"),
        ({"reasoning": {"effort": 5}}, "reasoning.effort", "reasoning.effort must be a string, got 5"),
        ({"structured_outputs": {"json": {"type": "object"}, "json_object": True}}, "structured_outputs.json_object",
         "structured_outputs asks for json and json_object: leave one out"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json",
         "structured_outputs.json is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2"
         " (char 1)"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_told_under_the_name_that_was_sent(sent: dict[str, Any], param: str, text: str) -> None:
    with pytest.raises(RequestError) as caught:
        chat(**sent)
    assert (caught.value.param, caught.value.message) == (param, text)


def test_a_missing_field_is_named() -> None:
    for model, name in ((ChatRequest, "messages"), (CompletionRequest, "prompt")):
        with pytest.raises(RequestError) as caught:
            model.of({name: None})
        assert (caught.value.param, caught.value.message) == (name, f"{name} is missing")


def test_the_engine_blames_the_name_that_was_sent(server: Live) -> None:
    body = {"messages": MESSAGES, "repetition_penalty": -3}
    error = server.http.post("/v1/chat/completions", json=body).json()["error"]
    assert error["param"] == "repetition_penalty"
    assert "repetition_penalty" in error["message"]
    body = {"prompt": "x", "guided_grammar": "refuse me"}
    assert server.http.post("/v1/completions", json=body).json()["error"]["param"] == "guided_grammar"


@pytest.mark.parametrize(
    ("path", "sent", "named"),
    [
        ("/v1/chat/completions", {"guided_json": {}}, "guided_json"),
        ("/v1/chat/completions", {"format": {}}, "format"),
        ("/v1/chat/completions", {"structured_outputs": {"json": {}}}, "structured_outputs.json"),
        ("/v1/messages", {"guided_json": {}}, "guided_json"),
        ("/v1/messages", {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
         "output_config.format.schema"),
        ("/v1/messages", {"output_format": {"type": "json_schema", "schema": {}}}, "output_format.schema"),
        ("/api/chat", {"options": {"json_schema": {}}}, "options.json_schema"),
        ("/api/chat", {"format": {"type": "object"}}, "format"),
    ],
)  # fmt: skip
def test_parts_of_a_schema_have_the_name_that_was_sent(
    native: FakeNative, server: Live, monkeypatch: pytest.MonkeyPatch, path: str, sent: dict[str, Any], named: str
) -> None:
    place = "response_format.json_schema.schema" if "output" in named and "messages" in path else "json_schema"
    body = {"messages": MESSAGES, "max_tokens": 3, **sent}
    apply = native.chat_apply
    parts = [f"{place}.uniqueItems"]
    monkeypatch.setattr(native, "chat_apply", lambda *given: {**apply(*given), "ignored": parts})
    assert server.http.post(path, json=body).headers["x-dflash-ignored"] == f"{named}.uniqueItems"

    def refuse(*_: Any) -> Any:
        raise RequestError(f"field '{place}.type': is none", param=f"{place}.type")

    monkeypatch.setattr(native, "chat_apply", refuse)
    answer = server.http.post(path, json=body)
    assert (answer.status_code, f"field '{named}.type': is none" in answer.text) == (400, True)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/completion"])
@pytest.mark.parametrize("stream", [False, True])
def test_unknown_fields_are_named_in_a_header(server: Live, path: str, stream: bool) -> None:
    start = {"messages": MESSAGES} if "chat" in path else {"prompt": "x"}
    answer = server.http.post(path, json={**start, "stream": stream, "zeal": 1, "verbosity": "low", "user": "me"})
    assert answer.status_code == 200
    assert answer.headers["x-dflash-ignored"] == "zeal, verbosity"
    assert "x-dflash-ignored" not in server.http.post(path, json={**start, "stream": stream}).headers


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/chat/completions/input_tokens", "/apply-template"])
def test_parts_that_nothing_heeds_are_named_in_a_header(server: Live, path: str) -> None:
    """As the template and the grammar know them; what came from the command line is not the client's."""
    messages = [{**MESSAGES[0], "mood": 1}, *MESSAGES]
    body = {"messages": messages, "chat_template_kwargs": {"mood": 2}}
    told = server.http.post(path, json=body).raise_for_status().headers["x-dflash-ignored"]
    assert told == "messages[].mood, chat_template_kwargs.mood"
    defaults = Defaults(chat={"chat_template_kwargs": {"mood": 2}})
    with live(lambda _: Engine.over(FakeNative()), Settings(defaults=defaults, strict_fields=True)) as strict:
        assert strict.http.post(path, json={"messages": MESSAGES}).status_code == 200
        answer = strict.http.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages[].mood")


def test_parts_of_converted_bodies_are_named_too(server: Live) -> None:
    body = {"messages": MESSAGES, "max_tokens": 3, "chat_template_kwargs": {"mood": 2}}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        answer = server.http.post(path, json=body).raise_for_status()
        assert answer.headers["x-dflash-ignored"] == "chat_template_kwargs.mood"


@pytest.mark.parametrize(
    ("path", "sent", "told"),
    [
        ("/v1/chat/completions", {"reasoning_budget_tokens": 5}, "reasoning_budget_tokens"),
        ("/v1/chat/completions", {"reasoning_budget_tokens": -1}, None),
        ("/v1/chat/completions", {"reasoning_budget_tokens": 5, "thinking_end_tags": ["</t>"]}, None),
        ("/v1/chat/completions", {"thinking": {"type": "adaptive", "budget_tokens": 5}}, "thinking.budget_tokens"),
        ("/v1/messages", {"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
        ("/v1/messages", {"thinking": {"type": "adaptive", "budget_tokens": 5}}, "thinking.budget_tokens"),
        ("/v1/messages", {"reasoning_budget_tokens": 5}, "reasoning_budget_tokens"),
        ("/v1/completions", {"thinking_budget_tokens": 5}, "thinking_budget_tokens"),
        ("/completion", {"reasoning_budget_tokens": 5, "thinking_end_tags": ["</t>"]}, None),
        ("/tokenize", {"content": "a", "prompt": "b", "model": "m"}, "prompt"),
        ("/tokenize", {"content": "a", "add_special": True, "add_special_tokens": False}, "add_special_tokens"),
        ("/detokenize", {"tokens": [1], "model": "m"}, None),
        ("/api/chat", {"options": {"reasoning_budget_tokens": 5}}, "options.reasoning_budget_tokens"),
        ("/api/chat", {"options": {"accept": "match", "budget": 3, "max_tokens": 3}}, None),
        ("/api/chat", {"options": {"num_predict": 3, "max_tokens": 4}}, "options.max_tokens"),
        ("/api/chat", {"budget": 2, "options": {"budget": 3}}, "budget"),
        ("/v1/chat/completions", {"messages": [{**MESSAGES[0], "name": "ann"}]}, "messages[].name"),
        ("/v1/chat/completions", {"messages": [*MESSAGES, {"role": "tool", "name": "f", "content": "x"}]}, None),
        # What loses against another field.
        ("/v1/chat/completions", {"enable_thinking": True, "reasoning_effort": "none"}, "enable_thinking"),
        ("/v1/chat/completions", {"think": True, "reasoning_effort": "none"}, "think"),
        ("/v1/chat/completions", {"think": False, "reasoning_effort": "none"}, None),
        ("/v1/chat/completions", {"think": True, "reasoning_effort": "low"}, None),
        *(("/v1/chat/completions", {**sent, "chat_template_kwargs": {name: value}}, f"chat_template_kwargs.{name}")
          for name, value, sent in (
            ("enable_thinking", True, {"reasoning_effort": "none"}),
            ("enable_thinking", False, {"enable_thinking": True}),
            ("reasoning_effort", "low", {"reasoning_effort": "high"}),
            ("reasoning_effort", "high", {"reasoning_effort": "none"}),
        )),
        ("/v1/responses", {"input": "x", "reasoning": {"effort": "none"}, "enable_thinking": True}, "enable_thinking"),
        ("/v1/messages", {"reasoning_budget_tokens": 5, "thinking_end_tags": ["</t>"],
                          "thinking": {"type": "enabled", "budget_tokens": 9}}, "reasoning_budget_tokens"),
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 2, "n_probs": 5}, "n_probs"),
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 2, "n_probs": 2}, None),
        ("/v1/chat/completions", {"logprobs": True, "n_probs": 5}, None),
        ("/v1/completions", {"logprobs": 2, "n_probs": 5}, "n_probs"),
        ("/v1/completions", {"logprobs": 2, "n_probs": 0}, None),
        *((path, {"post_sampling_probs": True}, "post_sampling_probs")
          for path in ("/v1/chat/completions", "/v1/completions", "/completion")),
        ("/v1/chat/completions", {"logprobs": True, "post_sampling_probs": True}, None),
        ("/completion", {"n_probs": 0, "post_sampling_probs": False}, None),
        ("/api/chat", {"format": "json", "json_schema": {"type": "null"}}, "format"),
        ("/api/chat", {"format": "json", "options": {"json_schema": {"type": "null"}}}, "format"),
        ("/api/chat", {"format": "json", "json_schema": {"type": "object"}}, None),
        ("/api/generate", {"prompt": "x", "format": "json", "json_schema": {"type": "null"}}, "format"),
        ("/api/generate", {"prompt": "x", "raw": True, "format": "json", "json_schema": {"type": "null"}}, "format"),
    ],
)  # fmt: skip
def test_values_without_effect_are_named(server: Live, path: str, sent: dict[str, Any], told: str | None) -> None:
    begin = {"messages": MESSAGES} if "chat" in path or "messages" in path else {}
    begin |= {"prompt": "x"} if "completion" in path and not begin else {}
    answer = server.http.post(path, json={**begin, "max_tokens": 3, **sent} if begin else sent).raise_for_status()
    assert answer.headers.get("x-dflash-ignored") == told


@pytest.mark.parametrize(
    ("path", "field"), [("/v1/messages", "messages"), ("/v1/responses", "input"), ("/api/chat", None)]
)
def test_messages_that_the_client_did_not_send_are_not_named(
    native: FakeNative, server: Live, monkeypatch: pytest.MonkeyPatch, path: str, field: str | None
) -> None:
    """Other formats' items become a chat completion's messages, which have other indices."""
    apply = native.chat_apply

    def applied(template: str | None, body: str) -> dict[str, Any]:
        if "deep" in body:
            raise RequestError("field 'messages[2].content': is too deep", param="messages[2].content")
        return {**apply(template, body), "ignored": ["messages[].tool_calls"]}

    monkeypatch.setattr(native, "chat_apply", applied)
    said = {"input" if field == "input" else "messages": [{"role": "user", "content": "deep"}], "max_tokens": 3}
    error = server.http.post(path, json=said).json()["error"]
    where = field or "messages[2].content"
    assert f"field '{where}': is too deep" in json.dumps(error, ensure_ascii=False)
    said = json.loads(json.dumps(said).replace("deep", "hi"))
    told = server.http.post(path, json=said).headers["x-dflash-ignored"]
    assert told == f"{field or 'messages'}[].tool_calls"


@pytest.mark.parametrize(
    ("path", "body", "blamed", "ignored"),
    [
        (
            "/v1/messages",
            {"system": "be", "messages": [*MESSAGES, {"role": "assistant", "content": [
                {"type": "text", "text": "deep"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}]}]},
            "messages.1",
            "system, messages[0].content, messages[1].content[1]",
        ),
        (
            "/v1/responses",
            {"instructions": "be", "input": [*MESSAGES, {"role": "assistant", "content": "deep"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]},
            "input[1]",
            "instructions, input[0].content, input[2]",
        ),
    ],
)  # fmt: skip
def test_messages_are_told_by_what_became_them(
    native: FakeNative, server: Live, monkeypatch: pytest.MonkeyPatch, path: str, body: Any, blamed: str, ignored: str
) -> None:
    apply = native.chat_apply
    names = ["messages[0].content", "messages[1].content", "messages[2].tool_calls[0].function.arguments"]

    def applied(template: str | None, body: str) -> dict[str, Any]:
        if "deep" in body:
            raise RequestError("messages[2] has tool_calls: it cannot be continued", param="messages[2]")
        return {**apply(template, body), "ignored": names}

    monkeypatch.setattr(native, "chat_apply", applied)
    error = server.http.post(path, json={**body, "max_tokens": 3}).json()["error"]
    assert error["message"].startswith(f"{blamed} has tool_calls")
    said = json.loads(json.dumps(body).replace("deep", "ok"))
    answer = server.http.post(path, json={**said, "max_tokens": 3}).raise_for_status()
    assert answer.headers["x-dflash-ignored"] == ignored


def test_what_the_template_decides_is_named(server: Live) -> None:
    """A tool's markers are the template's own, whatever a client gives."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {"messages": MESSAGES, "tools": tools, "max_tokens": 3}
    for words, told in ((["<x>"], "preserved_tokens"), (["<tool_call>"], None)):
        answer = server.http.post("/v1/chat/completions", json={**body, "preserved_tokens": words}).raise_for_status()
        assert answer.headers.get("x-dflash-ignored") == told


def test_tokenize_takes_no_chats(server: Live) -> None:
    answer = server.http.post("/tokenize", json={"messages": MESSAGES})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


def test_constraints_of_a_schema_that_no_grammar_holds_are_named(server: Live) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    for path in ("/v1/completions", "/completion"):
        for name in ("json_schema", "guided_json"):
            answer = server.http.post(path, json={"prompt": "x", name: schema}).raise_for_status()
            assert answer.headers["x-dflash-ignored"] == f"{name}.properties.a.uniqueItems"


def test_names_in_headers_are_clean_and_few(server: Live) -> None:
    names = ["a\r\nX-Evil: 1", "é", "x" * 500, *(f"n{i}" for i in range(5000))]
    header = ignored_header(names)
    assert header.startswith("a??X-Evil??1, ?, " + "x" * 64 + "..., n0")
    assert header.endswith(", ...")
    assert len(header) < 400
    answer = server.http.post("/tokenize", json={"content": "x", **dict.fromkeys(names, 1)})
    assert answer.headers["x-dflash-ignored"] == header
    assert "x-evil" not in answer.headers


def test_a_name_without_characters_is_told_too(server: Live) -> None:
    for body in ({"": 1}, {"zeal": 1, "": 1}):
        answer = server.http.post("/v1/completions", json={"prompt": "x", **body})
        assert answer.status_code == 200
        assert answer.headers["x-dflash-ignored"] == ", ".join(name or '""' for name in body)


def test_each_unknown_name_is_logged_once(server: Live, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            server.http.post("/v1/completions", json={"prompt": "x", "seen\nonce": 1})
    (line,) = [record.getMessage() for record in caplog.records if "seen" in record.getMessage()]
    assert line.startswith("/v1/completions: the field seen?once is unknown")


def test_strict_fields_refuses_unknown_ones(native: FakeNative) -> None:
    with live(lambda _: Engine.over(FakeNative()), Settings(strict_fields=True)) as server:
        answer = server.http.post("/v1/chat/completions", json={"messages": MESSAGES, "zeal": 1})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "zeal")
        answer = server.http.post("/api/chat", json={"messages": MESSAGES, "format": "json", "json_schema": {}})
        assert (answer.status_code, "format is unknown here, or has no effect" in answer.json()["error"]) == (400, True)
        body = {"messages": MESSAGES, "user": "me", "repetition_penalty": 1.1, "guided_choice": ["a"]}
        assert server.http.post("/v1/chat/completions", json=body).status_code == 200


def test_mapped_fields_reach_the_engine(server: Live, native: FakeNative) -> None:
    native.submitted.clear()
    body = {"prompt": "x", "repetition_penalty": 1.5, "guided_choice": ["a", "b"], "options": {"num_predict": 3}}
    server.http.post("/v1/completions", json=body).raise_for_status()
    assert json.loads(native.submitted[0]["sampling"]) == {"repeat_penalty": 1.5, "grammar": 'root ::= "a" | "b"'}
    assert native.submitted[0]["n_predict"] == 3


def test_stop_strings_of_the_command_line_are_not_counted() -> None:
    defaults = Defaults(stop=tuple(f"word {i}" for i in range(65)))
    options = parse_fields(CompletionRequest.of({"prompt": "x"}), defaults).options
    assert options["stop"] == defaults.stop
    assert parse_fields(CompletionRequest.of({"prompt": "x", "stop": "a"}), defaults).options["stop"] == ("a",)


def test_a_limit_of_drafts_is_told_in_words() -> None:
    with pytest.raises(RequestError, match=r"speculative\.n_max must be at most 63, got 64"):
        CompletionRequest.of({"prompt": "x", "speculative.n_max": 64})
