"""Every endpoint over a scripted engine: shapes, streaming, choices, errors before the first byte."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import openai
import pytest

from dflash_local.build.installed_build import installed_stamp
from dflash_local.engine import Engine
from dflash_local.native import AcceptRule, DraftMode
from dflash_local.sampling import SamplingParams
from dflash_local.server.fields.completion import NativeRequest
from dflash_local.server.fields.request import parse_fields
from dflash_local.server.formats.generation_settings import generation_settings
from tests.fake_native import CONTROL, EOG, FakeNative
from tests.server.conftest import nested
from tests.server.live import Live, live

TEXT = "hello world, said the fake"
MESSAGES: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def script(prompt: bytes) -> list[list[int]]:
    if b"think" in prompt:
        return [[*b"<think>hm"], [*b"</think>"], [*b"42", EOG]]
    if b"call" in prompt:
        return [[*b"ok"], [CONTROL, *b'{"a"'], [*b": 1}", EOG]]
    if b"emoji" in prompt:
        return [[byte] for byte in "é😀!".encode()] + [[EOG]]
    data = TEXT.encode()
    return [list(data[:1]), list(data[1:9]), [*data[9:], EOG]]


@pytest.fixture(scope="module")
def native() -> FakeNative:
    return FakeNative(script, n_slots=4, n_ctx_slot=256)


def sse(text: str, *, done: bool = True) -> list[dict[str, Any]]:
    """The events of a stream, which ends as OpenAI's do, or (not `done`) with its last event."""
    events = text.removesuffix("data: [DONE]\n\n").split("\n\n")
    assert text.endswith("data: [DONE]\n\n") == done
    return [json.loads(event.removeprefix("data: ")) for event in events if event]


# ---- answers ----


def test_chat(server: Live) -> None:
    answer = server.openai.chat.completions.create(model="fake", messages=MESSAGES)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (9, 26)
    timings = answer.model_extra["timings"]  # type: ignore[index]
    assert timings["predicted_n"] == 26
    assert timings["draft_n"] == 8
    assert all(isinstance(value, (int, float)) and value >= 0 for value in timings.values())
    drafting = answer.model_extra["dflash"]  # type: ignore[index]
    assert drafting["acceptance_length"] == pytest.approx(25 / 2)
    controller = ("passes_n", "plain_n", "nodes_mean", "depth_mean", "denoised_mean", "reason")
    assert {name: drafting[name] for name in controller} == {
        "passes_n": 2, "plain_n": 0, "nodes_mean": 5, "depth_mean": 3, "denoised_mean": 8, "reason": "drafting pays",
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/completion"])
@pytest.mark.parametrize("stream", [False, True])
def test_timings_are_numbers_and_the_model_is_the_alias(server: Live, path: str, stream: bool) -> None:
    """An answer that ends in the prompt's pass has no acceptance length, and a client's name may be long."""
    body = {"messages": MESSAGES, "prompt": "hi", "max_tokens": 1, "stream": stream, "model": "x" * 5000}
    text = server.http.post(path, json=body).text
    answers = sse(text, done=path != "/completion") if stream else [json.loads(text)]
    assert answers[-1]["dflash"]["acceptance_length"] is None
    assert all(isinstance(value, (int, float)) and value >= 0 for value in answers[-1]["timings"].values())
    assert {answer["model"] for answer in answers if "model" in answer} == {"fake"}


def test_the_fingerprint_names_the_build(server: Live) -> None:
    answer = server.openai.chat.completions.create(model="x", messages=MESSAGES)
    stamp = installed_stamp()
    assert stamp is not None
    assert answer.system_fingerprint == f"b{stamp['key'][:8]}-{stamp['llama_cpp_commit'][:9]}"


def test_chat_stream(server: Live) -> None:
    stream = server.openai.chat.completions.create(
        model="fake", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.content for chunk in chunks[1:-2]] == ["h", "ello wor", "ld, said the fake"]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 35
    assert chunks[-1].model_extra["timings"]["predicted_n"] == 26  # type: ignore[index]
    assert len({chunk.id for chunk in chunks}) == 1


def test_timings_without_usage_are_in_the_last_chunk(server: Live) -> None:
    response = server.http.post("/v1/chat/completions", json={"messages": MESSAGES, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = sse(response.text)
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["timings"]["predicted_n"] == 26
    assert all("usage" not in event for event in events)


def test_tool_call(server: Live) -> None:
    answer = server.openai.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "call"}], tools=TOOLS
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    call = answer.choices[0].message.tool_calls[0]  # type: ignore[index]
    assert (call.function.name, json.loads(call.function.arguments)) == ("f", {"a": 1})  # type: ignore[union-attr]


def test_tool_call_stream(server: Live) -> None:
    stream = server.openai.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "call"}], tools=TOOLS, stream=True
    )
    chunks = [chunk.choices[0] for chunk in stream]
    calls = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
    assert "".join(call.function.arguments or "" for call in calls if call.function) == '{"a": 1}'
    assert chunks[-1].finish_reason == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_of_thoughts_are_counted(server: Live, stream: bool) -> None:
    for text, count in (("think", len("<think>hm")), ("hi", 0)):
        body = {"messages": [{"role": "user", "content": text}], "stream": stream, "n": 2}
        told = server.http.post("/v1/chat/completions", json={**body, "stream_options": {"include_usage": True}}).text
        usage = (sse(told)[-1] if stream else json.loads(told))["usage"]
        assert usage["completion_tokens_details"] == {"reasoning_tokens": 2 * count}


def test_tokens_of_thoughts_in_several_blocks_are_counted() -> None:
    answer = "<think>let me</think>so <think>sée it</think>done"
    with Engine.over(FakeNative(answer.encode())) as engine:
        generation = engine.submit([*b"hi"])
        completion = generation.result()

        def count(text: str) -> int:
            return engine.tokens_through(text, completion, generation)

        assert completion.text == answer
        assert count("let me") == len("<think>let me")
        assert count("let mesée it") == len("<think>let me") + len("sée it".encode())
        assert count("let me, no") == count("") == 0


def test_characters_are_never_torn(server: Live) -> None:
    stream = server.openai.chat.completions.create(
        model="x", messages=[{"role": "user", "content": "emoji"}], stream=True
    )
    pieces = [chunk.choices[0].delta.content for chunk in stream]
    assert [piece for piece in pieces if piece] == ["é", "😀", "!"]


def test_several_choices(server: Live, native: FakeNative) -> None:
    native.submitted.clear()
    answer = server.openai.chat.completions.create(model="fake", messages=MESSAGES, n=3, seed=7)
    assert [choice.message.content for choice in answer.choices] == [TEXT] * 3
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (9, 78)
    assert sorted(json.loads(entry["sampling"])["seed"] for entry in native.submitted) == [7, 8, 9]


@pytest.mark.parametrize(
    ("seed", "seeds"),
    [
        (-2, [0, 1, 2**32 - 2]),
        (2**32 - 2, [0, 1, 2**32 - 2]),
        (-(2**63), [0, 1, 2]),
        (2**63 - 2, [0, 1, 2**32 - 2]),
        (-1, [2**32 - 1] * 3),
        (2**32 - 1, [2**32 - 1] * 3),
        (2**64 - 1, [2**32 - 1] * 3),
        (None, [None] * 3),
    ],
)
def test_a_choice_is_random_only_if_all_are(
    server: Live, native: FakeNative, seed: int | None, seeds: list[int | None]
) -> None:
    native.submitted.clear()
    server.openai.chat.completions.create(model="fake", messages=MESSAGES, n=3, seed=seed)
    found = [json.loads(entry["sampling"]).get("seed") for entry in native.submitted]
    assert sorted(found, key=str) == sorted(seeds, key=str)


def test_several_choices_streamed(server: Live) -> None:
    stream = server.openai.chat.completions.create(
        model="fake", messages=MESSAGES, n=3, stream=True, stream_options={"include_usage": True}
    )
    texts, reasons = ["", "", ""], ["", "", ""]
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] += choice.finish_reason or ""
    assert texts == [TEXT] * 3
    assert reasons == ["stop"] * 3
    assert chunk.usage is not None
    assert chunk.usage.completion_tokens == 78


def test_completion(server: Live) -> None:
    answer = server.openai.completions.create(model="fake", prompt="hi", max_tokens=5, stop=[" wo"])
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("hello", "length")
    answer = server.openai.completions.create(model="fake", prompt="hi", stop=" wo")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("hello", "stop")


def test_completion_stream(server: Live) -> None:
    chunks = list(server.openai.completions.create(model="fake", prompt=[104, 105], stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_several_prompts(server: Live) -> None:
    answer = server.openai.completions.create(model="fake", prompt=["hi", "emoji"], n=2)
    assert [choice.text for choice in answer.choices] == [TEXT, TEXT, "é😀!", "é😀!"]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 7


def test_llama_server_completion(server: Live) -> None:
    body = server.http.post("/completion", json={"prompt": "hi", "n_predict": 4}).json()
    assert (body["content"], body["stop_type"], body["tokens_predicted"]) == ("hell", "limit", 4)
    events = server.http.post("/completions", json={"prompt": "hi", "stream": True}).text
    parsed = sse(events, done=False)
    assert "".join(event["content"] for event in parsed) == TEXT
    assert parsed[-1]["stop"] is True
    assert parsed[-1]["timings"]["predicted_n"] == 26


def test_a_stream_tells_tokens_without_text() -> None:
    """Whichever pass they came with: the same tokens with drafts and without."""
    tokens = [ord("a"), CONTROL, ord("b"), CONTROL]
    streams = []
    for passes in ([[token] for token in tokens], [tokens[:1], tokens[1:3], tokens[3:]], [tokens]):
        native = FakeNative(partial(lambda passes, _: [*passes, [EOG]], passes))
        with live(partial(lambda native, _: Engine.over(native), native)) as running:
            text = running.http.post("/completion", json={"prompt": "hi", "stream": True}).text
        streams.append(sse(text, done=False))
    for events in streams:
        assert [token for event in events for token in event["tokens"]] == tokens
        assert "".join(event["content"] for event in events) == "ab"


def test_the_fields_of_llama_server(server: Live) -> None:
    body = {"prompt": "hi", "temperature": 0.5, "stop": ["wo"], "logit_bias": [[5, False]], "ignore_eos": True}
    whole = server.http.post("/completion", json=body).json()
    names = ("truncated", "has_new_line", "prompt", "tokens", "stop_type", "stopping_word")
    assert [whole[name] for name in names] == [False, False, "hi", [], "word", "wo"]
    assert whole["id_slot"] in range(4)
    settings = whole["generation_settings"]
    assert (settings["temperature"], settings["top_k"], settings["stop"]) == (0.5, 40, ["wo"])
    assert settings["logit_bias"] == [{"token": 5, "bias": None}, {"token": EOG, "bias": None}]
    assert (settings["n_predict"], settings["seed"], settings["stream"]) == (-1, 2**32 - 1, False)
    last = sse(server.http.post("/completion", json=body | {"stream": True}).text, done=False)
    assert last[-1].keys() == whole.keys()
    assert (last[-1]["content"], last[-1]["tokens"]) == ("", [])
    assert [event["tokens_predicted"] for event in last] == sorted(event["tokens_predicted"] for event in last)
    assert {event["id_slot"] for event in last} <= set(range(4))
    asked = server.http.post("/completion", json={"prompt": "hi", "return_tokens": True, "n_predict": 4}).json()
    assert bytes(asked["tokens"]) == b"hell"
    assert asked["tokens_cached"] == 2 + 3


@pytest.mark.parametrize("biases", [{"5": -1, "6": 0}, [(5, -1), (6, 0)]])
def test_biases_are_told_by_token(server: Live, biases: Any) -> None:
    told = server.http.post("/completion", json={"prompt": "hi", "logit_bias": biases}).json()["generation_settings"]
    assert told["logit_bias"] == [{"token": 5, "bias": -1}, {"token": 6, "bias": 0}]


def test_probabilities_that_were_asked_for_are_told(server: Live) -> None:
    for asked in ({"n_probs": 3, "post_sampling_probs": True}, {"n_probs": 0, "post_sampling_probs": False}):
        told = server.http.post("/completion", json={"prompt": "hi", **asked}).json()["generation_settings"]
        assert {name: told[name] for name in asked} == asked


def test_keys_of_biases_are_told_as_the_sampler_reads_them(server: Live) -> None:
    """Digits alone are an id; tests/engine/test_sampling_fields.py has the sampler's side."""
    keys: dict[str, int | str] = {"5": 5, "007": 7, "00": 0, "0" * 5000 + "8": 8}
    keys |= {text: text for text in ("9 ", " 4", "+5", "-0", "+", "\u0665", "\u00a05", "0x5", "")}
    asked = {"prompt": "hi", "logit_bias": dict.fromkeys(keys, 1)}
    told = server.http.post("/completion", json=asked).json()["generation_settings"]
    assert told["logit_bias"] == [{"token": token, "bias": 1} for token in keys.values()]


def test_a_banned_token_has_no_bias(server: Live) -> None:
    """A flag may ban one by -inf, which is no JSON."""
    defaults = replace(server.service.settings.defaults, sampling=SamplingParams(logit_bias=[(7, float("-inf"))]))
    fields = parse_fields(NativeRequest.of({"prompt": "x"}), defaults)
    assert generation_settings(server.engine, fields)["logit_bias"] == [{"token": 7, "bias": None}]


def test_chosen_fields(server: Live) -> None:
    chosen = ["content", "generation_settings/n_predict", "timings/predicted_n", "nothing", "content/x"]
    body = {"prompt": "hi", "n_predict": 4, "response_fields": chosen}
    expected = {"content": "hell", "generation_settings/n_predict": 4, "timings/predicted_n": 4}
    assert server.http.post("/completion", json=body).json() == expected
    several = server.http.post("/completion", json={**body, "prompt": ["hi", "ho"]}).json()
    assert several == [expected] * 2
    events = sse(server.http.post("/completion", json={**body, "stream": True}).text, done=False)
    assert events[-1] == {**expected, "content": ""}


@pytest.mark.parametrize("n", [1, 2])
def test_several_prompts_of_llama_server(server: Live, n: int) -> None:
    answers = server.http.post("/completion", json={"prompt": ["hi", "emoji"], "n_predict": 40, "n": n}).json()
    assert [answer["content"] for answer in answers] == [TEXT] * n + ["é😀!"] * n
    assert [answer["prompt"] for answer in answers] == ["hi"] * n + ["emoji"] * n
    assert [answer["index"] for answer in answers] == list(range(2 * n))


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ([104, "i", 33], ["hi!"]),
        (["h", 105], ["hi"]),
        ({"prompt_string": "hi"}, ["hi"]),
        ({"prompt_string": ["h", 105], "multimodal_data": []}, ["hi"]),
        ([[104, "i"], "ho", {"prompt_string": "hm"}, [104]], ["hi", "ho", "hm", "h"]),
    ],
)
def test_prompts_of_llama_server(server: Live, prompt: Any, told: list[str]) -> None:
    answers = server.http.post("/completion", json={"prompt": prompt, "n_predict": 1}).json()
    assert [answer["prompt"] for answer in (answers if isinstance(answers, list) else [answers])] == told
    assert server.http.post("/v1/completions", json={"prompt": prompt}).json()["usage"]["prompt_tokens"] == sum(
        map(len, told)
    )


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_verbose(server: Live, path: str, stream: bool) -> None:
    body = {"messages": MESSAGES, "prompt": "user: hi\n", "stream": stream, "max_tokens": 5}
    for verbose in (True, False):
        text = server.http.post(path, json={**body, "verbose": verbose}).text
        last = sse(text)[-1] if stream else json.loads(text)
        assert ("__verbose" in last) == verbose
        if verbose:
            assert (last["__verbose"]["prompt"], last["__verbose"]["content"]) == ("user: hi\n", "hello")


def test_a_verbose_server_tells_all_unless_told_otherwise(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = server.service.settings
    monkeypatch.setattr(
        server.service, "settings", replace(settings, defaults=replace(settings.defaults, verbose=True))
    )
    for more, told in (({}, True), ({"verbose": None}, True), ({"verbose": False}, False)):
        answer = server.http.post("/v1/chat/completions", json={"messages": MESSAGES, **more}).json()
        assert ("__verbose" in answer) == told


def test_paths_without_v1(server: Live) -> None:
    assert server.http.post("/chat/completions", json={"messages": MESSAGES}).json()["object"] == "chat.completion"
    assert server.http.get("/models").json()["data"][0]["id"] == "fake"


def test_options_reach_the_engine(server: Live, native: FakeNative) -> None:
    native.submitted.clear()
    body = {
        "prompt": "hi", "temperature": 0, "top_k": 5, "min_p": 0.1, "dry_multiplier": 0.5, "logit_bias": {"7": -100},
        "ignore_eos": True, "max_completion_tokens": 9, "budget": 3, "draft": "chain", "accept": "match",
        "speculative.n_max": 7, "seed": None, "user": "someone", "grammar": "root ::= [a-z]+",
    }  # fmt: skip
    server.http.post("/v1/completions", json=body).raise_for_status()
    sent = native.submitted[0]
    names = ("n_predict", "budget", "draft", "accept", "draft_n_max", "lookup")
    assert [sent[name] for name in names] == [9, 3, DraftMode.CHAIN, AcceptRule.MATCH, 7, -1]
    assert json.loads(sent["sampling"]) == {
        "temperature": 0, "top_k": 5, "min_p": 0.1, "dry_multiplier": 0.5, "logit_bias": {"7": -100},
        "ignore_eos": True, "grammar": "root ::= [a-z]+",
    }  # fmt: skip


# ---- refusals ----


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "refuse", "content": "x"}]}, "messages"),
        ({"messages": MESSAGES, "temperature": -1}, "temperature"),
        ({"messages": MESSAGES, "temperature": "hot"}, "temperature"),
        ({"messages": MESSAGES, "top_p": 2}, "top_p"),
        ({"messages": MESSAGES, "n": 0}, "n"),
        ({"messages": MESSAGES, "n": 1000}, "n"),
        ({"messages": MESSAGES, "n": 1.0}, "n"),
        ({"messages": MESSAGES, "n": True}, "n"),
        ({"messages": MESSAGES, "max_tokens": -5}, "max_tokens"),
        ({"messages": MESSAGES, "max_completion_tokens": "x"}, "max_completion_tokens"),
        ({"messages": MESSAGES, "stop": 3}, "stop"),
        ({"messages": MESSAGES, "stop": ["x"] * 100}, "stop"),
        ({"messages": MESSAGES, "stream": "yes"}, "stream"),
        ({"messages": MESSAGES, "stream_options": 3}, "stream_options"),
        ({"messages": MESSAGES, "functions": [{}]}, "functions"),
        ({"messages": MESSAGES, "modalities": ["audio"]}, "modalities"),
        ({"messages": MESSAGES, "chat_template_kwargs": 3}, "chat_template_kwargs"),
        ({"messages": MESSAGES, "reasoning_effort": 3}, "reasoning_effort"),
        ({"messages": MESSAGES, "model": 3}, "model"),
        ({"messages": MESSAGES, "budget": "big"}, "budget"),
        ({"messages": MESSAGES, "budget": 1000}, "budget"),
        ({"messages": MESSAGES, "budget": 0}, "budget"),
        ({"messages": MESSAGES, "draft": "star"}, "draft"),
        ({"messages": MESSAGES, "draft": 4}, "draft"),
        ({"messages": MESSAGES, "accept": True}, "accept"),
        ({"messages": MESSAGES, "accept": "block"}, "accept"),  # this engine has no DFlash 2 drafter
        ({"messages": MESSAGES, "speculative.n_max": 64}, "speculative.n_max"),
        ({"messages": MESSAGES, "speculative.n_max": "4"}, "speculative.n_max"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, "messages"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_chat_requests(server: Live, native: FakeNative, body: dict[str, Any], param: str, stream: bool) -> None:
    native.submitted.clear()
    response = server.http.post("/v1/chat/completions", json={"stream": stream, **body})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    if error["code"] == "context_length_exceeded":
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (307, 256)
    else:
        assert set(error) == {"message", "type", "param", "code"}
    assert native.submitted == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, ["x"]]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": {"text": "x"}}, "prompt"),
        ({"prompt": {"prompt_string": "x", "multimodal_data": ["aGk="]}}, "prompt.multimodal_data[0]"),
        ({"prompt": {"prompt_string": "x", "other": 1}}, "prompt"),
        ({"prompt": nested("x", lambda inner: {"prompt_string": inner}, 500)}, "prompt"),
        ({"prompt": "x", "t_max_predict_ms": -2}, "t_max_predict_ms"),
        ({"prompt": "x", "verbose": "yes"}, "verbose"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [999]}, "prompt"),
        ({"prompt": ["x"] * 129}, "prompt"),
        ({"prompt": ["x"] * 65, "n": 2}, "n"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x", "response_format": {"type": "json_object"}}, "response_format"),
        ({"prompt": "x", "grammar": "refuse me"}, "grammar"),
    ],
)
def test_bad_completion_requests(server: Live, body: dict[str, Any], param: str) -> None:
    response = server.http.post("/v1/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'{"temperature": NaN}', "invalid_json"),
        (b'{"prompt": "\\ud800"}', "invalid_json"),
        (b'{"prompt": "\\uD800"}', "invalid_json"),
        ('{"prompt": "\\uD800"}'.encode("utf-16"), "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b'{"prompt": "\xed\xa0\x80"}', "invalid_json"),
        (b"[" * 5000, "invalid_json"),
        (b'{"n": ' + b"9" * 5000 + b"}", "invalid_json"),
    ],
)
def test_bad_json(server: Live, raw: bytes, code: str) -> None:
    response = server.http.post("/v1/completions", content=raw)
    assert (response.status_code, response.json()["error"]["code"]) == (400, code)


def test_a_number_that_json_cannot_write(server: Live) -> None:
    tool = b'{"type": "function", "function": {"name": "f", "parameters": {"maximum": 1e999}}}'
    for path, name, value in (
        ("/v1/chat/completions", "tools", b"[%s]" % tool),
        ("/completion", "json_schema", b'{"maximum": 1e999}'),
    ):
        body = b'{"messages": [{"role": "user", "content": "x"}], "prompt": "x", "%s": %s}' % (name.encode(), value)
        answer = server.http.post(path, content=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


def test_context_length(server: Live) -> None:
    response = server.http.post("/v1/completions", json={"prompt": "x" * 256})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    message = response.json()["error"]["message"]
    assert "maximum context length is 256 tokens" in message  # what clients look for
    assert "exceeds the available context size" in message


def test_body_limit(server: Live) -> None:
    response = server.http.post("/v1/completions", content=b'{"prompt": "' + b"x" * 20_000 + b'"}')
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


def test_huge_max_tokens_is_fine(server: Live) -> None:
    assert server.http.post("/v1/completions", json={"prompt": "hi", "max_tokens": 10**12}).status_code == 200


def test_unknown_path_and_method(server: Live) -> None:
    assert server.http.get("/v1/nothing").json()["error"]["type"] == "invalid_request_error"  # OpenAI's
    assert server.http.get("/nothing").json()["error"]["type"] == "not_found_error"
    assert server.http.get("/v1/completions").status_code == 405


def test_openai_client_sees_its_own_exceptions(server: Live) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.openai.chat.completions.create(model="fake", messages=MESSAGES, temperature=-1)
    assert caught.value.param == "temperature"


# ---- facts and text ----


def test_metrics(server: Live) -> None:
    server.http.post("/v1/completions", json={"prompt": "hi"}).raise_for_status()
    text = server.http.get("/metrics").text
    values = {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    }
    for name in (
        "prompt_tokens_total", "prompt_tokens_cached_total", "prompt_seconds_total", "tokens_predicted_total",
        "tokens_predicted_seconds_total", "n_decode_total", "n_tokens_max", "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total", "spec_decode_num_drafts_total", "prompt_tokens_seconds",
        "predicted_tokens_seconds", "requests_processing", "requests_deferred", "n_busy_slots_per_decode",
    ):  # fmt: skip
        assert f"llamacpp:{name}" in values
        assert f"# TYPE llamacpp:{name} " in text
    assert values["llamacpp:tokens_predicted_total"] >= 26
    assert values["llamacpp:predicted_tokens_seconds"] > 0
    again = server.http.get("/metrics").text
    assert "llamacpp:predicted_tokens_seconds 0\n" in again  # nothing since the last scrape


def test_metrics_tell_what_was_chosen(server: Live, monkeypatch: pytest.MonkeyPatch, native: FakeNative) -> None:
    def scrape() -> dict[str, float]:
        text = server.http.get("/metrics").text
        lines = [line for line in text.splitlines() if line.startswith("dflash:") and "time_" not in line]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    before = scrape()
    for budget in (1, 8, 8):
        server.http.post("/v1/completions", json={"prompt": "hi", "budget": budget}).raise_for_status()
    after = scrape()
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    assert grown['dflash:passes_by_nodes_total{nodes="1"}'] == 2  # an answer is two passes after the prompt's
    assert (
        grown['dflash:passes_by_nodes_total{nodes="5"}'] == grown['dflash:choices_total{reason="drafting pays"}'] == 4
    )
    assert (
        grown['dflash:drafts_by_length_total{length="8"}']
        == grown['dflash:lookup_tokens_total{outcome="drafted"}']
        == 4
    )
    assert grown['dflash:graphs_total{model="target",outcome="built"}'] == 2
    assert grown['dflash:phase_seconds_total{phase="verify"}'] == pytest.approx(9 * 0.007)
    # What a library does not tell is absent, not zero.
    monkeypatch.setattr(native, "stats", lambda: {"steps": 3, "t_verify_ms": 1.0, "graphs_reused_target": 2})
    assert scrape() == {'dflash:phase_seconds_total{phase="verify"}': 0.001}


def test_facts(server: Live) -> None:
    assert server.http.get("/health").json() == {"status": "ok"}
    model = server.openai.models.list().data[0]
    assert (model.id, model.owned_by) == ("fake", "dflash-local")
    props = server.http.get("/props").json()
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (4, 256)
    slots = server.http.get("/slots").json()
    assert [slot["is_processing"] for slot in slots] == [False] * 4


def test_text(server: Live) -> None:
    assert server.http.post("/tokenize", json={"content": "hi"}).json() == {"tokens": [104, 105]}
    assert server.http.post("/tokenize", json={"content": "h", "with_pieces": True}).json() == {
        "tokens": [{"id": 104, "piece": "h"}]
    }
    mixed = {"content": ["h", 105, "j"], "with_pieces": True}
    assert [token["piece"] for token in server.http.post("/tokenize", json=mixed).json()["tokens"]] == ["h", "i", "j"]
    parts = server.http.post("/tokenize", json={"content": "é", "with_pieces": True}).json()["tokens"]
    assert [token["piece"] for token in parts] == [[0xC3], [0xA9]]
    assert server.http.post("/tokenize", json={"content": [1.5]}).json()["error"]["param"] == "content"
    assert server.http.post("/detokenize", json={"tokens": [104, 256]}).json() == {
        "content": "h<tool_call>",
        "prompt": "h<tool_call>",
    }
    assert server.http.post("/apply-template", json={"messages": MESSAGES}).json() == {"prompt": "user: hi\n"}
    assert server.http.post("/tokenize", json={"content": 3}).json()["error"]["param"] == "content"
    assert server.http.post("/detokenize", json={"tokens": ["x"]}).json()["error"]["param"] == "tokens"


def test_long_texts_do_not_hold_up_the_event_loop(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    detokenize, token_bytes, asked = server.engine.detokenize, server.engine.token_bytes, []

    def detokenize_aside(tokens: Sequence[int], *, special: bool = False) -> str:
        with pytest.raises(RuntimeError):  # this thread has none
            asyncio.get_running_loop()
        return detokenize(tokens, special=special)

    def token_bytes_aside(tokens: Sequence[int]) -> list[bytes]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        asked.append([*tokens])
        return token_bytes(tokens)

    monkeypatch.setattr(server.engine, "detokenize", detokenize_aside)
    monkeypatch.setattr(server.engine, "token_bytes", token_bytes_aside)
    answer = server.http.post("/tokenize", json={"content": "ab" * 1000, "with_pieces": True}).json()
    assert answer["tokens"] == [{"id": ord(char), "piece": char} for char in "ab" * 1000]
    assert asked == [[ord("a"), ord("b")]]  # each token once
    assert server.http.post("/detokenize", json={"tokens": [104] * 500}).json()["content"] == "h" * 500


def test_page(server: Live) -> None:
    response = server.http.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "http://" not in response.text  # self-contained
    assert "https://" not in response.text
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
    for name, kind in (("js", "text/javascript"), ("css", "text/css")):
        found = re.search(rf'"page/(page-\w+\.{name})"', response.text)
        assert found
        file = server.http.get(f"/page/{found[1]}")
        assert file.status_code == 200 and file.headers["content-type"].startswith(kind)
        again = server.http.get(f"/page/{found[1]}", headers={"If-None-Match": file.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for name in ("none.js", "..%2F__init__.py", "%2e%2e/app.py"):
        assert server.http.get(f"/page/{name}").status_code == 404
    assert server.http.get("/favicon.ico").status_code == 204
