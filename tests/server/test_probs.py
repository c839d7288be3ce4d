"""Log-probabilities over HTTP: the shapes of OpenAI's chat and completions and of llama-server, whole and streamed, in
order with the text; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.generation import Completion, Timings
from dflash_local.server.formats.probs import Alignment
from dflash_local.server.settings import Settings
from tests.fake_native import CONTROL, EOG, FakeNative, prob_of
from tests.server.conftest import events, post
from tests.server.live import Live, live, live_pair

TEXT = "hello world, said the fake"
MESSAGES: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def script(prompt: bytes) -> list[list[int]]:
    if b"call" in prompt:
        return [[*b"ok"], [CONTROL, *b'{"a"'], [*b": 1}", EOG]]
    if b"emoji" in prompt:
        return [[byte] for byte in "é😀!".encode()] + [[EOG]]
    if b"end" in prompt:
        return [[EOG]]
    if b"hidden" in prompt:
        return [[*b"a", CONTROL], [*b"b"], [CONTROL, EOG]]
    data = TEXT.encode()
    return [list(data[:1]), list(data[1:9]), [*data[9:], EOG]]


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    native = FakeNative(script, n_slots=4, n_ctx_slot=256)
    with live(lambda _progress: Engine.over(native), Settings(alias="fake")) as running:
        yield running


def entry(token: int, n_top: int, kind: str = "logprob") -> dict[str, Any]:
    """As llama-server's `probs_vector_to_json` has it, of what the fake says."""
    prob = prob_of(token, n_top)
    return {**one(token, prob.value, kind), f"top_{kind}s": [one(other, value, kind) for other, value in prob.top]}


def one(token: int, value: float, kind: str) -> dict[str, Any]:
    piece = bytes([token]) if token < 256 else b"<tool_call>" if token == CONTROL else b""
    return {"id": token, "token": piece.decode(errors="ignore"), "bytes": list(piece), kind: value}


# ---- chat ----


@pytest.mark.parametrize(
    ("asked", "n_top"),
    [({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 3}, 3), ({"n_probs": 5}, 5), ({"n_probs": 70}, 70)],
)
def test_chat(server: Live, asked: dict[str, Any], n_top: int) -> None:
    expected = [entry(token, n_top) for token in TEXT.encode()]
    body = {"messages": MESSAGES, **asked}
    choice = post(server, "/v1/chat/completions", body)["choices"][0]
    assert choice["logprobs"] == {"content": expected, "refusal": None}
    choices = [event["choices"][0] for event in events(server, "/v1/chat/completions", body)]
    assert [one for choice in choices for one in choice.get("logprobs", {"content": []})["content"]] == expected
    for choice in choices[1:-1]:
        assert choice["delta"]["content"].encode() == bytes(one["id"] for one in choice["logprobs"]["content"])


@pytest.mark.parametrize("asked", [{}, {"logprobs": False}, {"logprobs": None}, {"n_probs": 0}, {"top_logprobs": None}])
def test_nobody_asked(server: Live, asked: dict[str, Any]) -> None:
    assert "logprobs" not in post(server, "/v1/chat/completions", {"messages": MESSAGES, **asked})["choices"][0]
    assert post(server, "/v1/completions", {"prompt": "x", **asked})["choices"][0]["logprobs"] is None
    numbers = {name: value for name, value in asked.items() if value is not False}
    assert "completion_probabilities" not in post(server, "/completion", {"prompt": "x", **numbers})


def test_openais_client(server: Live) -> None:
    answer = server.openai.chat.completions.create(model="m", messages=MESSAGES, logprobs=True, top_logprobs=2, n=2)
    for choice in answer.choices:
        assert choice.logprobs and choice.logprobs.content
        assert "".join(token.token for token in choice.logprobs.content) == choice.message.content == TEXT
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)
    text = server.openai.completions.create(model="m", prompt="x", logprobs=2).choices[0]
    assert text.logprobs and text.logprobs.tokens and text.logprobs.text_offset
    assert text.logprobs.text_offset == list(range(len(TEXT) + 1))


def test_after_sampling(server: Live) -> None:
    body = {"messages": MESSAGES, "n_probs": 2, "post_sampling_probs": True, "max_tokens": 2}
    content = post(server, "/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
    assert content == [entry(token, 2, "prob") for token in b"he"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_with_tools(server: Live, stream: bool) -> None:
    """llama-server refuses it when streamed."""
    body = {"messages": [{"role": "user", "content": "call"}], "tools": TOOLS, "logprobs": True, "stream": stream}
    if stream:
        choices = [event["choices"][0] for event in events(server, "/v1/chat/completions", body)]
    else:
        choices = post(server, "/v1/chat/completions", body)["choices"]
    entries = [one["id"] for choice in choices for one in choice.get("logprobs", {"content": []})["content"]]
    assert entries == [*b"ok", CONTROL, *b'{"a": 1}']


# ---- completions ----


def legacy(text: bytes, n_top: int, *, ended: bool = True) -> dict[str, Any]:
    """The token that ends the answer has no text here."""
    tokens = {i: (chr(token), -token / 512) for i, token in enumerate(text)}
    if ended:
        tokens[len(text)] = ("", -EOG / 512)
    return {
        "tokens": [name for name, _ in tokens.values()],
        "token_logprobs": [value for _, value in tokens.values()],
        "top_logprobs": [
            {chr(other): -other / 512 for other in range(n_top)} | {name: value} for name, value in tokens.values()
        ],
        "text_offset": list(tokens),
    }


@pytest.mark.parametrize(("asked", "n_top"), [({"logprobs": 0}, 0), ({"logprobs": 2}, 2), ({"n_probs": 3}, 3)])
def test_text(server: Live, asked: dict[str, Any], n_top: int) -> None:
    body = {"prompt": "x", **asked}
    assert post(server, "/v1/completions", body)["choices"][0]["logprobs"] == legacy(TEXT.encode(), n_top)
    parts = [event["choices"][0]["logprobs"] for event in events(server, "/v1/completions", body)]
    assert joined(parts) == legacy(TEXT.encode(), n_top)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


@pytest.mark.parametrize("prompt", ["what?", [*b"what?"]], ids=["text", "tokens"])
@pytest.mark.parametrize("max_tokens", [0, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_echo(server: Live, prompt: Any, max_tokens: int, stream: bool) -> None:
    body = {"prompt": [prompt, prompt], "echo": True, "logprobs": 1, "max_tokens": max_tokens, "n": 2}
    if stream:
        choices: list[list[dict[str, Any]]] = [[], [], [], []]
        for event in events(server, "/v1/completions", body):
            for choice in event["choices"]:
                choices[choice["index"]].append(choice)
        texts = ["".join(part["text"] for part in parts) for parts in choices]
        logprobs = [joined([part["logprobs"] for part in parts]) for parts in choices]
    else:
        whole = post(server, "/v1/completions", body)
        texts, logprobs = ([choice[name] for choice in whole["choices"]] for name in ("text", "logprobs"))
        assert whole["usage"]["completion_tokens"] == 4 * max_tokens
    expected = legacy(b"what?" + TEXT.encode()[:max_tokens], 1, ended=False)
    expected["token_logprobs"][0] = expected["top_logprobs"][0] = None
    assert texts == ["what?" + TEXT[:max_tokens]] * 4
    assert logprobs == [expected] * 4


def test_echo_without_logprobs(server: Live) -> None:
    body = {"prompt": "what? ", "echo": True, "max_tokens": 5}
    assert post(server, "/v1/completions", body)["choices"][0]["text"] == "what? hello"
    parts = [event["choices"][0] for event in events(server, "/v1/completions", body)]
    assert "".join(part["text"] for part in parts) == "what? hello"
    assert all(part["logprobs"] is None for part in parts)


# ---- llama-server's own ----


def test_native(server: Live) -> None:
    body = {"prompt": "x", "n_probs": 4}
    expected = [entry(token, 4) for token in [*TEXT.encode(), EOG]]
    assert post(server, "/completion", body)["completion_probabilities"] == expected
    parts = events(server, "/completion", body)
    assert [part["completion_probabilities"] for part in parts] == [[one] for one in expected]
    assert [part["content"] for part in parts] == [*TEXT, ""]
    assert [part["stop"] for part in parts] == [False] * len(TEXT) + [True]
    body |= {"post_sampling_probs": True, "n_predict": 1}
    assert post(server, "/completion", body)["completion_probabilities"] == [entry(ord("h"), 4, "prob")]


# ---- tokens and text ----


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_of_a_stop_string_are_not_told(server: Live, stream: bool) -> None:
    body = {"prompt": "x", "n_probs": 1, "logprobs": 1, "stop": ["world", " world"], "stream": stream}
    for path in ("/completion", "/v1/completions"):
        if not stream:
            answer = post(server, path, body)
            answer = answer if path == "/completion" else answer["choices"][0]
            ids = answer.get("completion_probabilities") or answer["logprobs"]["tokens"]
        else:
            parts = events(server, path, body)
            ids = [
                one
                for part in parts
                for one in part.get("completion_probabilities", [])
                or (part["choices"][0]["logprobs"]["tokens"] if "choices" in part else [])
            ]
        assert len(ids) == len("hello")


def test_characters_of_several_tokens(server: Live) -> None:
    parts = events(server, "/completion", {"prompt": "emoji", "n_probs": 1})
    *told, _ = [one for part in parts for one in part["completion_probabilities"]]
    assert bytes(one["bytes"][0] for one in told) == "é😀!".encode()
    assert [one["token"] for one in told] == [""] * 6 + ["!"]
    assert "".join(part["content"] for part in parts) == "é😀!"
    logprobs = post(server, "/v1/completions", {"prompt": "emoji", "logprobs": 0})["choices"][0]["logprobs"]
    assert logprobs["tokens"][:2] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert logprobs["text_offset"] == [0, 0, 1, 1, 1, 1, 2, 3]


@pytest.mark.parametrize("stream", [False, True])
def test_control_tokens_are_told(server: Live, stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "hidden"}], "logprobs": True}
    if stream:
        choices = [event["choices"][0] for event in events(server, "/v1/chat/completions", body)]
    else:
        choices = post(server, "/v1/chat/completions", body)["choices"]
    told = [one for choice in choices for one in choice.get("logprobs", {"content": []})["content"]]
    assert [one["token"] for one in told] == ["a", "<tool_call>", "b", "<tool_call>"]


def test_a_likelihood_of_a_prompt_that_ends_the_answer(server: Live) -> None:
    """lm-evaluation-harness asks for one token more and drops the last entry, whatever it is."""
    body = {"prompt": "end", "echo": True, "logprobs": 1, "max_tokens": 1}
    logprobs = post(server, "/v1/completions", body)["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [None, -ord("n") / 512, -ord("d") / 512, -EOG / 512]


def test_alignment() -> None:
    """Text that lags behind its tokens; what is left at the end goes out unless a stop string took it."""
    pieces = {1: b"ab", 2: b"\xc3", 3: b"\xa9", 4: b"", 5: b"cd"}
    for stopped_by in (None, "cd"):
        alignment = Alignment(pieces)
        assert alignment.push("", [prob_of(1, 1)]) == []
        assert [one[:2] for one in alignment.push("ab", [prob_of(2, 1), prob_of(4, 1)])] == [(1, 0)]
        assert [one[:2] for one in alignment.push("é", [prob_of(3, 1)])] == [(2, 2), (4, 2), (3, 2)]
        assert alignment.push("", [prob_of(5, 1)]) == []
        done = Completion("abé", [], "stop", 1, 0, Timings(), [], stopped_by=stopped_by)
        assert [one[:2] for one in alignment.finish(done)] == ([] if stopped_by else [(5, 3)])


# ---- refusals ----


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {"top_logprobs": 3}, "top_logprobs"),
        ("/v1/chat/completions", {"top_logprobs": 3, "logprobs": False}, "top_logprobs"),
        ("/v1/chat/completions", {"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ("/v1/chat/completions", {"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
        ("/v1/chat/completions", {"logprobs": 3}, "logprobs"),
        ("/v1/chat/completions", {"n_probs": 101}, "n_probs"),
        ("/v1/chat/completions", {"logprobs": True, "echo": True}, "echo"),
        ("/v1/chat/completions", {"logprobs": True, "post_sampling_probs": "yes"}, "post_sampling_probs"),
        ("/v1/completions", {"logprobs": True}, "logprobs"),
        ("/v1/completions", {"logprobs": -1}, "logprobs"),
        ("/v1/completions", {"logprobs": 101}, "logprobs"),
        ("/v1/completions", {"top_logprobs": 2}, "top_logprobs"),
        ("/v1/completions", {"echo": 1}, "echo"),
        ("/v1/completions", {"logprobs": 1, "post_sampling_probs": True}, "post_sampling_probs"),
        ("/completion", {"n_probs": 1.5}, "n_probs"),
        ("/completion", {"n_probs": 101}, "n_probs"),
        ("/completion", {"echo": True}, "echo"),
        ("/completion", {"top_logprobs": 2}, "top_logprobs"),
    ],
    ids=str,
)
def test_refusals(server: Live, path: str, body: dict[str, Any], param: str) -> None:
    response = server.http.post(path, json={"messages": MESSAGES, "prompt": "x", **body})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text


# ---- with a model ----


@pytest.fixture(scope="module")
def pocket_server(pocket: dict[str, Path]) -> Iterator[Live]:
    with live_pair(pocket["target"], pocket["dflash"], Settings(alias="pocket"), n_ctx=4096, n_slots=4) as running:
        yield running


def test_drafted_answers_tell_what_plain_ones_do(pocket_server: Live) -> None:
    messages = [{"role": "user", "content": "What is 48 plus 24?"}]
    body = {"messages": messages, "temperature": 1, "seed": 3, "logprobs": True, "top_logprobs": 4, "max_tokens": 60}
    body |= {"budget": 8}  # on a busy machine its own choice may be not to draft
    answers = [post(pocket_server, "/v1/chat/completions", body | {"draft": draft}) for draft in ("tree", "off")]
    drafted, plain = (answer["choices"][0] for answer in answers)
    assert answers[0]["timings"]["draft_n_accepted"] > 0
    assert drafted == plain
    content = drafted["logprobs"]["content"]
    assert "".join(one["token"] for one in content) == drafted["message"]["content"]
    assert all(one["logprob"] < 0 and len(one["top_logprobs"]) == 4 for one in content)
    streamed = [event["choices"][0] for event in events(pocket_server, "/v1/chat/completions", body)]
    assert [one for choice in streamed for one in choice.get("logprobs", {"content": []})["content"]] == content


def test_a_likelihood_by_echo_is_that_of_the_answer(pocket_server: Live) -> None:
    """What a model says greedily, given as a prompt: the same numbers."""
    text = "<|im_start|>user\nWhat is 48 plus 24?<|im_end|>\n<|im_start|>assistant\n"
    prompt = pocket_server.engine.tokenize(text)
    body = {"prompt": prompt, "temperature": 0, "n_predict": 12, "n_probs": 3}
    said = post(pocket_server, "/completion", body)["completion_probabilities"]
    tokens = prompt + [one["id"] for one in said]
    body = {"prompt": tokens, "max_tokens": 0, "echo": True, "logprobs": 3}
    read = post(pocket_server, "/v1/completions", body)["choices"][0]
    logprobs = read["logprobs"]
    assert read["text"] == text + "".join(one["token"] for one in said) and read["finish_reason"] == "length"
    assert logprobs["tokens"][-12:] == [one["token"] for one in said]
    assert logprobs["token_logprobs"][-12:] == [one["logprob"] for one in said]
    assert [max(top.values()) for top in logprobs["top_logprobs"][-12:]] == logprobs["token_logprobs"][-12:]
    assert logprobs["text_offset"][0] == 0 and logprobs["text_offset"][-12] == len(text)
    assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    assert len(logprobs["tokens"]) == len(tokens) and all(value < 0 for value in logprobs["token_logprobs"][1:])
