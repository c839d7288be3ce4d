"""Ollama's API: lines of JSON, thoughts and calls, what a conversation may hold, options, models, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.server.embeddings.options import ModelOptions
from dflash_local.server.fields.ollama import unloads
from dflash_local.server.fields.request import Defaults
from dflash_local.server.security.limits import Limits
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.patience import wait_until
from tests.server import encoders
from tests.server.conftest import TEXT, post, script
from tests.server.live import Live, live

HI: Any = [{"role": "user", "content": "hi"}]
CALL: Any = [{"role": "user", "content": "call twice"}]
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
FIM = {"fim_pre": 1, "fim_suf": 2, "fim_mid": 3}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, native: FakeNative) -> Iterator[Live]:
    bert = encoders.write_bert(tmp_path_factory.mktemp("encoders") / "bert.gguf", encoders.weights())
    settings = Settings(
        alias="fake",
        aliases=("fake", "other"),
        limits=Limits(body=10_000),
        embedding=ModelOptions(str(bert), "tiny-bert"),
        defaults=Defaults(max_tokens=300, stop=("END",)),
    )
    with live(lambda _progress: Engine.over(native), settings) as running:
        yield running


def lines(server: Live, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def refusal(server: Live, path: str, body: Any, status: int = 400) -> str:
    answer = server.http.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    return str(answer.json()["error"])


# ---- chats ----


def test_a_chat_streams_lines_unless_it_is_told_not_to(server: Live) -> None:
    parts = lines(server, "/api/chat", {"model": "fake", "messages": HI})
    assert "".join(part["message"]["content"] for part in parts) == TEXT
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    whole = post(server, "/api/chat", {"model": "fake", "messages": HI, "stream": False})
    assert whole["message"] == {"role": "assistant", "content": TEXT}
    for last in (parts[-1], whole):
        assert last["done_reason"] == "stop"
        assert (last["prompt_eval_count"], last["eval_count"]) == (9, len(TEXT))
        assert (last["prompt_eval_duration"], last["eval_duration"] > 0) == (1_000_000, True)
        assert last["total_duration"] > last["load_duration"] >= 0


def test_thoughts_and_calls_have_places_of_their_own(server: Live) -> None:
    body = {"model": "fake", "messages": CALL, "tools": TOOLS}
    calls = [
        {"id": "id0", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}},
        {"id": "id1", "function": {"index": 1, "name": "f", "arguments": {"b": 2}}},
    ]
    parts = lines(server, "/api/chat", body)
    assert [part["message"]["tool_calls"] for part in parts if "tool_calls" in part["message"]] == [calls]
    whole = post(server, "/api/chat", {**body, "stream": False})
    assert whole["message"] == {"role": "assistant", "content": "ok", "tool_calls": calls}
    assert whole["done_reason"] == "stop"

    thinking = {"model": "fake", "messages": [{"role": "user", "content": "think"}], "think": True}
    parts = lines(server, "/api/chat", thinking)
    assert "".join(part["message"].get("thinking", "") for part in parts) == "let me see"
    assert "".join(part["message"]["content"] for part in parts) == "It is so."
    assert post(server, "/api/chat", {**thinking, "stream": False})["message"]["thinking"] == "let me see"
    whole = post(server, "/api/generate", {"model": "fake", "prompt": "think", "stream": False})
    assert (whole["response"], whole["thinking"]) == ("It is so.", "let me see")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("none", "none"), ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}})],
)
def test_programs_may_choose_a_tool(
    server: Live, native: FakeNative, monkeypatch: pytest.MonkeyPatch, choice: Any, expected: Any
) -> None:
    seen = looked_at(native, monkeypatch)
    untyped = [{"function": tool["function"]} for tool in TOOLS]
    body = {"messages": HI, "tools": untyped, "tool_choice": choice, "max_output_tokens": 3, "stream": False}
    assert post(server, "/api/chat", body)["eval_count"] == 3
    assert (seen[0]["tool_choice"], seen[0]["tools"]) == (expected, TOOLS)


def looked_at(native: FakeNative, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The conversations that reach the templates from now on."""
    seen: list[Any] = []
    apply = native.chat_apply

    def look(template: str | None, body: str) -> dict[str, Any]:
        seen.append(json.loads(body))
        return apply(template, body)

    monkeypatch.setattr(native, "chat_apply", look)
    return seen


def test_results_without_ids_belong_to_calls_by_name(server: Live, native: FakeNative, monkeypatch: Any) -> None:
    seen = looked_at(native, monkeypatch)
    calls = [{"function": {"index": i, "name": name, "arguments": {"x": i}}} for i, name in enumerate("fgf")]
    messages = [
        *HI,
        {"role": "assistant", "thinking": "hm", "tool_calls": calls},
        {"role": "tool", "tool_name": "g", "content": "1"},
        {"role": "tool", "tool_name": "f", "content": "2"},
        {"role": "tool", "content": "3", "images": []},
        {"role": "tool", "content": "4"},
    ]
    post(server, "/api/chat", {"model": "fake", "messages": messages, "stream": False, "think": "low"})
    sent = seen[0]["messages"]
    assert [call["function"] for call in sent[1]["tool_calls"]] == [
        {"name": name, "arguments": {"x": i}} for i, name in enumerate("fgf")
    ]
    assert sent[1]["thinking"] == "hm"
    assert [message.get("tool_call_id") for message in sent[2:]] == ["call_1_1", "call_1_0", "call_1_2", None]
    assert [message.get("name") for message in sent[2:]] == ["g", "f", None, None]
    assert seen[0]["chat_template_kwargs"] == {"reasoning_effort": "low"}


def test_results_without_ids_belong_to_no_earlier_calls(server: Live, native: FakeNative, monkeypatch: Any) -> None:
    seen = looked_at(native, monkeypatch)

    def calling(*ids: str) -> dict[str, Any]:
        calls = [{"id": call_id, "function": {"name": "f", "arguments": {}}} for call_id in ids]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    result = {"role": "tool", "tool_name": "f", "content": "1"}
    messages = [
        *HI, calling("a", "b"), {**result, "tool_call_id": "a"}, result,
        calling("never"), *HI,
        calling("c"), calling("d"), result, result,
    ]  # fmt: skip
    post(server, "/api/chat", {"messages": messages, "stream": False})
    ids = [message.get("tool_call_id") for message in seen[0]["messages"] if message["role"] == "tool"]
    assert ids == ["a", "b", "c", "d"]


def test_a_tools_name_belongs_to_its_result(server: Live, native: FakeNative, monkeypatch: Any) -> None:
    """Elsewhere it stays what it is, and libdflash tells that it is lost, as it does of parts of a choice."""
    seen = looked_at(native, monkeypatch)
    messages = [{**HI[0], "tool_name": "g"}, {"role": "tool", "name": "f", "tool_name": "g", "content": "1"}]
    tools = [{"function": {"name": "g", "parameters": {"type": "object"}}}]
    choice = {"type": "function", "name": "g", "mood": 1}
    post(server, "/api/chat", {"messages": messages, "tools": tools, "tool_choice": choice, "stream": False})
    assert [(sent.get("name"), sent.get("tool_name")) for sent in seen[0]["messages"]] == [(None, "g"), ("f", "g")]
    assert seen[0]["tool_choice"] == {"type": "function", "function": {"name": "g"}, "mood": 1}


def test_what_is_asked_of_a_model_that_is_only_loaded_is_told(server: Live) -> None:
    body = {"model": "fake", "stream": False}
    load = server.http.post("/api/generate", json={**body, "prompt": "", "system": "be", "keep_alive": 5})
    assert (load.json()["done_reason"], load.headers["X-DFlash-Ignored"]) == ("load", "system")
    assert "X-DFlash-Ignored" not in server.http.post("/api/generate", json=body).headers


def test_log_probabilities(server: Live) -> None:
    body = {"model": "fake", "messages": HI, "logprobs": True, "top_logprobs": 2}
    whole = post(server, "/api/chat", {**body, "stream": False})["logprobs"]
    assert [(one["token"], len(one["top_logprobs"])) for one in whole] == [(char, 2) for char in TEXT]
    streamed = [one for part in lines(server, "/api/chat", body) for one in part.get("logprobs", ())]
    assert streamed == whole
    text = {"model": "fake", "prompt": "hi", "raw": True, "logprobs": True, "stream": False}
    assert [one["top_logprobs"] for one in post(server, "/api/generate", text)["logprobs"]] == [[]] * len(TEXT)


# ---- texts ----


def test_context_goes_on_where_an_answer_ended(server: Live, native: FakeNative) -> None:
    first = post(server, "/api/generate", {"model": "fake", "prompt": "hi", "system": "be", "stream": False})
    assert bytes(first["context"]) == b"system: be\nuser: hi\n" + TEXT.encode()
    native.submitted.clear()
    body = {"model": "fake", "prompt": "more", "context": first["context"]}
    parts = lines(server, "/api/generate", body)
    assert bytes([*native.submitted[0]["tokens"]]) == b"system: be\nuser: hi\n" + TEXT.encode() + b"user: more\n"
    assert len(parts[-1]["context"]) == len(native.submitted[0]["tokens"]) + len(TEXT)


def test_a_raw_prompt_has_no_template(server: Live, native: FakeNative) -> None:
    native.submitted.clear()
    body = {"model": "fake", "prompt": "hi", "raw": True, "stream": False, "options": {"num_predict": 3}}
    whole = post(server, "/api/generate", body)
    assert bytes([*native.submitted[0]["tokens"]]) == b"hi"
    assert (whole["response"], whole["done_reason"], "context" in whole) == (TEXT[:3], "length", False)
    ignored = server.http.post("/api/generate", json={**body, "system": "be", "think": True})
    assert ignored.headers["X-DFlash-Ignored"] == "system, think"
    for raw in (True, False):
        options = {"num_predict": 3, "reasoning_budget_tokens": 5}
        ignored = server.http.post("/api/generate", json={**body, "raw": raw, "options": options})
        assert ignored.headers["X-DFlash-Ignored"] == "options.reasoning_budget_tokens"


def test_a_suffix_needs_a_model_for_it(server: Live) -> None:
    body = {"model": "fake", "prompt": "a", "suffix": "b", "stream": False}
    assert "Infill is not supported by this model" in refusal(server, "/api/generate", body, 501)
    native = FakeNative(info=FIM)
    with live(lambda _progress: Engine.over(native), Settings(alias="fim")) as other:
        assert post(other, "/api/generate", body)["response"] == "hello"
        assert [*native.submitted[0]["tokens"]] == [1, *b"a", 2, *b"b", 3]
        assert "insert" in post(other, "/api/show", {"model": "fim"})["capabilities"]


# ---- options ----


def test_options_reach_the_sampler(server: Live, native: FakeNative) -> None:
    native.submitted.clear()
    options = {
        "num_predict": 4, "temperature": 0.25, "top_k": 5, "top_p": 0.5, "min_p": 0.25, "seed": 7,
        "repeat_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.25, "repeat_last_n": 9, "stop": ["w"],
    }  # fmt: skip
    post(server, "/api/chat", {"model": "fake", "messages": HI, "options": options, "stream": False})
    sampling = json.loads(native.submitted[0]["sampling"])
    assert {name: sampling[name] for name in options.keys() - {"num_predict", "stop"}} == {
        name: value for name, value in options.items() if name not in ("num_predict", "stop")
    }
    assert native.submitted[0]["n_predict"] == 4
    forms = {"top_k": 5.0, "num_ctx": 64.0, "num_predict": 2.0, "temperature": 1.0}
    assert post(server, "/api/chat", {"messages": HI, "options": forms, "stream": False})["eval_count"] == 2
    own = {"accept": "match", "budget": 3, "speculative.n_max": 2, "lookup": False}
    for no_limit in (-1, -2, 0, -7):
        post(server, "/api/chat", {"messages": HI, "options": {**own, "num_predict": no_limit}, "stream": False})
        assert {name: native.submitted[-1][name] for name in ("budget", "draft_n_max", "lookup", "n_predict")} == {
            "budget": 3, "draft_n_max": 2, "lookup": 0, "n_predict": -1,
        }  # fmt: skip
    whole = {"repeat_last_n": -1}  # the context
    post(server, "/api/chat", {"messages": HI, "options": whole, "stream": False})
    assert json.loads(native.submitted[-1]["sampling"])["repeat_last_n"] == server.engine.n_ctx_slot
    stopped = {"model": "fake", "messages": HI, "options": {"stop": "wor"}, "stream": False}
    assert post(server, "/api/chat", stopped)["message"]["content"] == "hello "


def test_the_schema_of_an_answer(server: Live, native: FakeNative) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for path, prompt in (("/api/chat", {"messages": HI}), ("/api/generate", {"prompt": "x", "raw": True})):
        for format, expected in (("json", {"type": "object"}), (schema, schema)):
            native.submitted.clear()
            post(server, path, {"model": "fake", **prompt, "format": format, "stream": False})
            if path == "/api/generate":
                assert json.loads(native.submitted[0]["sampling"])["json_schema"] == expected


def test_what_clients_always_send_changes_nothing(server: Live) -> None:
    options = {"num_ctx": 64, "num_gpu": 99, "num_thread": 4, "num_keep": 4, "use_mmap": True, "tfs_z": 1.0}
    body = {"model": "any:7b", "messages": HI, "options": options, "keep_alive": "5m", "stream": False}
    answer = server.http.post("/api/chat", json=body).raise_for_status()
    assert "X-DFlash-Ignored" not in answer.headers
    assert answer.json()["model"] == "fake:latest"
    for name in ("fake", "fake:latest", "other"):
        assert post(server, "/api/chat", {**body, "model": name})["model"] == name


def test_what_has_no_effect_is_named(server: Live) -> None:
    body = {"model": "fake", "messages": HI, "options": {"num_ctx": 10**6, "odd": 1}, "keep_alive": 0, "mood": 1}
    answer = server.http.post("/api/chat", json=body)
    twice = {"messages": HI, "max_tokens": 3, "top_k": 4, "options": {"num_predict": 2, "top_k": 5}, "stream": False}
    both = server.http.post("/api/chat", json=twice)
    assert (both.json()["eval_count"], both.headers["X-DFlash-Ignored"]) == (2, "top_k, max_tokens")
    assert set(answer.headers["X-DFlash-Ignored"].split(", ")) == {
        "mood", "options.odd", "options.num_ctx", "keep_alive",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/chat", {"messages": "hi"}, "messages must be a list"),
        ("/api/chat", {"messages": ["hi"]}, "messages[0] must be an object"),
        ("/api/chat", {"messages": [{"role": "refuse", "content": "x"}]}, "the template refuses this role"),
        ("/api/chat", {"messages": HI, "options": {"num_predict": "x"}}, "num_predict must be an integer"),
        ("/api/chat", {"messages": HI, "options": {"temperature": -1}}, "temperature"),
        ("/api/chat", {"messages": HI, "options": {"repeat_last_n": -2}}, "options.repeat_last_n must be"),
        ("/api/chat", {"messages": HI, "options": {"accept": "block"}}, "block needs a DFlash 2"),
        ("/api/chat", {"messages": HI, "options": {"return_drafts": True}}, "no place for drafts"),
        ("/api/chat", {"messages": HI, "options": {"tfs_z": 0.5}}, "tail-free sampling is not supported"),
        ("/api/chat", {"messages": HI, "format": "xml"}, 'format must be "json" or a JSON schema'),
        ("/api/chat", {"messages": HI, "options": {"num_ctx": 0.5}}, "options.num_ctx must be an integer"),
        ("/api/chat", {"messages": HI, "think": "hard"}, 'think must be true, false, "low"'),
        ("/api/chat", {"messages": HI, "keep_alive": "soon"}, "keep_alive must be a number of seconds"),
        ("/api/chat", {"messages": HI, "stream": "yes"}, "stream must be true or false"),
        ("/api/chat", {"messages": HI, "top_logprobs": 2}, "top_logprobs needs logprobs"),
        ("/api/chat", {"messages": HI, "n_probs": 2}, "n_probs: use logprobs and top_logprobs"),
        ("/api/generate", {"prompt": 7}, "prompt must be a string"),
        ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, "template: the server's template is used"),
        ("/api/generate", {"prompt": "x", "images": ["aGk="]}, "images[0]: image input is not supported"),
        ("/api/generate", {"prompt": "x", "context": "y"}, "context must be a list"),
        ("/api/generate", {"prompt": "x", "context": [99999]}, "context"),
        ("/api/generate", {"prompt": "x", "context": [-1]}, "context"),
        ("/api/generate", {"prompt": "x", "context": [1 << 70]}, "context"),
        ("/api/generate", {"prompt": "x", "raw": True, "context": [99999]}, "context"),
        ("/api/generate", {"prompt": "x" * 900}, "context"),
        ("/api/embed", {}, "input is missing"),
        ("/api/embed", {"input": 7}, "input must be a text or a list of texts"),
        ("/api/embed", {"input": "x", "dimensions": 7}, "dimensions: the model's vectors have"),
        ("/api/embeddings", {}, "prompt is missing"),
    ],
)
def test_refusals_are_one_sentence(server: Live, path: str, body: Any, said: str) -> None:
    assert said in refusal(server, path, body)


def test_errors_have_ollamas_shape_wherever_they_are_made(server: Live) -> None:
    assert "JSON" in server.http.post("/api/chat", content=b"{").json()["error"]
    assert server.http.post("/api/chat", content=b" " * 20_000).json().keys() == {"error"}
    with live(lambda _progress: Engine.over(FakeNative()), Settings(api_keys=("k",))) as closed:
        for path in ("/api/tags", "/api/version"):
            answer = closed.http.get(path)
            assert (answer.status_code, answer.json()) == (401, {"error": "Invalid API key"})
        assert closed.http.get("/api/tags", headers={"Authorization": "Bearer k"}).status_code == 200
    native = FakeNative()
    with live(lambda _progress: Engine.over(native), Settings()) as broken:
        native.fail_next_pass = "out of memory"
        parts = lines(broken, "/api/chat", {"messages": HI})
    assert "out of memory" in parts[-1]["error"]


# ---- models ----


def test_models_are_listed_with_what_is_known_of_them(server: Live) -> None:
    text, bert = server.http.get("/api/tags").json()["models"]
    assert (text["name"], text["model"]) == ("fake:latest", "fake:latest")
    assert (bert["name"], bert["details"]["family"]) == ("tiny-bert:latest", "bert")
    assert bert["size"] > 0
    assert len(bert["digest"]) == 64
    assert bert["modified_at"].startswith("20")
    running = {one["name"]: one for one in server.http.get("/api/ps").json()["models"]}
    assert running["fake:latest"]["context_length"] == 256
    assert running["tiny-bert:latest"]["digest"] == bert["digest"]
    major, minor, _ = server.http.get("/api/version").json()["version"].split(".")
    assert (int(major), int(minor)) > (0, 6)


def test_show(server: Live) -> None:
    for name in ("fake", "fake:latest", "other"):
        model = post(server, "/api/show", {"model": name})
        assert model["model_info"]["general.architecture"] == "fake"
        assert model["model_info"]["fake.context_length"] == 256
        assert model["capabilities"] == ["completion"]
        assert {"num_ctx 256", "num_predict 300", 'stop "END"'} <= set(model["parameters"].split("\n"))
    assert post(server, "/api/show", {"name": "tiny-bert"})["capabilities"] == ["embedding"]
    assert "not found; there is fake:latest" in refusal(server, "/api/show", {"model": "llama3"}, 404)


def test_what_a_file_tells(pocket: dict[str, Path]) -> None:
    template, settings = {"chat_template": ""}, Settings(alias="pocket", model_path=str(pocket["target"]))

    def load(_progress: Any) -> Engine:
        return Engine.over(FakeNative(info=template))

    with live(load, settings) as server:
        model = post(server, "/api/show", {"model": "pocket"})
        (listed,) = server.http.get("/api/tags").json()["models"]
    assert model["capabilities"] == ["completion", "tools"]
    assert model["details"] == {
        "parent_model": "", "format": "gguf", "family": "qwen3", "families": ["qwen3"], "parameter_size": "5.6M",
        "quantization_level": "F16",
    }  # fmt: skip
    assert model["model_info"]["tokenizer.ggml.tokens"] is None
    assert "<|im_start|>" in model["template"]
    assert listed["size"] == pocket["target"].stat().st_size
    template["chat_template"] = "{{ messages }}<think>"  # as --chat-template has it
    with live(load, settings) as server:
        model = post(server, "/api/show", {"model": "pocket"})
    assert model["template"] == template["chat_template"]
    assert model["capabilities"] == ["completion", "thinking"]


@pytest.mark.parametrize(
    ("info", "capabilities"),
    [(FIM, ["completion", "tools", "insert"]), ({**FIM, "fim_mid": -1}, ["completion", "tools"])],
)
def test_tokens_for_infill_that_are_found_by_their_texts(
    pocket: dict[str, Path], info: dict[str, int], capabilities: list[str]
) -> None:
    """The file names none of them."""
    native = FakeNative(info={"chat_template": "", **info})
    settings = Settings(alias="pocket", model_path=str(pocket["target"]))
    with live(lambda _progress: Engine.over(native), settings) as server:
        assert post(server, "/api/show", {"model": "pocket"})["capabilities"] == capabilities


def test_what_go_programs_always_send() -> None:
    """Every field, even if it is empty."""
    load = {"prompt": "", "suffix": "", "system": "", "template": "", "options": None}
    show = {"system": "", "template": "", "verbose": False, "options": None}
    with live(lambda _progress: Engine.over(FakeNative()), Settings(alias="a", strict_fields=True)) as server:
        for path, body in (
            ("/api/show", {**show, "model": "a", "name": ""}),
            ("/api/show", {**show, "model": "", "name": "a"}),
            ("/api/generate", {**load, "model": "a"}),
            ("/api/generate", {**load, "model": "a", "raw": False, "images": [], "context": [], "options": {}}),
            ("/api/generate", {**load, "model": "a", "prompt": "x", "truncate": True, "shift": False}),
            ("/api/chat", {"model": "a", "messages": [], "tools": None, "options": {}, "think": False}),
        ):
            answer = server.http.post(path, json=body)
            assert answer.status_code == 200, answer.text
            assert "X-DFlash-Ignored" not in answer.headers
        assert "not found" in refusal(server, "/api/show", {**show, "model": "", "name": "llama3"}, 404)
        assert "system: a model is shown as" in refusal(server, "/api/show", {"model": "a", "system": "be"})
        assert "temperature" in refusal(server, "/api/generate", {"model": "a", "options": {}, "temperature": 0})


@pytest.mark.parametrize("action", ["pull", "push", "create", "copy", "blobs/sha256:0"])
def test_what_is_not_here_says_so(server: Live, action: str) -> None:
    error = refusal(server, f"/api/{action}", {"model": "x"}, 501)
    if action == "pull":
        assert "dflash-local pull" in error
    assert server.http.request("DELETE", "/api/delete", json={"model": "x"}).status_code == 501
    assert server.http.head("/").status_code == 200


def test_what_ollama_does_not_have_either(server: Live) -> None:
    assert refusal(server, "/api/me", {}, 404) == "POST /api/me: Not Found"
    assert server.http.get("/api/chat").status_code == 405
    assert server.http.get("/api/chat").json().keys() == {"error"}


def test_embeddings(server: Live) -> None:
    both = post(server, "/api/embed", {"model": "tiny-bert", "input": ["a cat", "a dog"], "truncate": True})
    openai = post(server, "/v1/embeddings", {"input": ["a cat", "a dog"]})
    assert both["embeddings"] == [entry["embedding"] for entry in openai["data"]]
    assert (both["model"], post(server, "/api/embed", {"model": "x", "input": "a"})["model"]) == (
        "tiny-bert", "tiny-bert:latest",
    )  # fmt: skip
    assert both["prompt_eval_count"] == openai["usage"]["prompt_tokens"]
    one = post(server, "/api/embeddings", {"model": "tiny-bert", "prompt": "a cat"})
    assert one["embedding"] == both["embeddings"][0]
    assert post(server, "/api/embed", {"input": []})["embeddings"] == []
    assert post(server, "/api/embeddings", {"prompt": ""})["embedding"] == []


# ---- keep_alive ----


def test_durations() -> None:
    assert [unloads(value) for value in (0, 0.0, "0", "0s", "0m0s")] == [True] * 5
    assert [unloads(value) for value in (None, -1, 5, "5m", "1h30m", "-1s", "0.5s", "10")] == [False] * 8


def test_an_empty_prompt_loads_or_frees_the_model(server: Live) -> None:
    for path in ("/api/chat", "/api/generate"):
        loaded = post(server, path, {"model": "fake"})
        assert (loaded["done"], loaded["done_reason"]) == (True, "load")
        assert "--sleep-idle-seconds" in refusal(server, path, {"model": "fake", "keep_alive": 0}, 501)


@pytest.mark.parametrize(("path", "more"), [("/api/chat", {}), ("/api/generate", {}), ("/api/generate", {"raw": True})])
def test_fields_beside_an_empty_prompt_are_read(
    server: Live, native: FakeNative, path: str, more: dict[str, Any]
) -> None:
    n_submitted = len(native.submitted)
    assert "presence_penalty" in refusal(server, path, {"model": "fake", "presence_penalty": 1e9, **more}, 400)
    assert "top_p" in refusal(server, path, {"model": "fake", "options": {"top_p": "x"}, **more}, 400)
    assert "accept" in refusal(server, path, {"model": "fake", "accept": "block", **more}, 400)
    assert "id_slot" in refusal(server, path, {"model": "fake", "id_slot": 99, **more}, 400)
    assert len(native.submitted) == n_submitted


@pytest.mark.parametrize("prompt", [{}, {"prompt": "hi"}])
def test_keep_alive_0_frees_the_model_where_it_may_sleep(prompt: Any) -> None:
    def load(_progress: Any) -> Engine:
        return Engine.over(FakeNative())

    with live(load, Settings(alias="a", sleep_idle_seconds=3600)) as server:
        before = server.http.get("/api/ps").json()["models"]
        answer = server.http.post("/api/generate", json={"model": "a", **prompt, "keep_alive": "0s", "stream": False})
        assert "X-DFlash-Ignored" not in answer.headers
        assert answer.json()["done_reason"] == ("stop" if prompt else "unload")
        wait_until(lambda: server.http.get("/api/ps").json()["models"] == [])
        assert [one["name"] for one in before] == ["a:latest"]
        assert post(server, "/api/generate", {"prompt": "hi", "stream": False})["response"] == "hello"


def test_keep_alive_0_leaves_a_model_that_sleeps_alone() -> None:
    n_loads = 0

    def load(_progress: Any) -> Engine:
        nonlocal n_loads
        n_loads += 1
        return Engine.over(FakeNative())

    with live(load, Settings(alias="a", sleep_idle_seconds=3600)) as server:
        unload = {"model": "a", "keep_alive": 0}
        for path in ("/api/generate", "/api/generate", "/api/chat"):
            answer = post(server, path, unload)
            assert (answer["done"], answer["done_reason"]) == (True, "unload")
            wait_until(lambda: server.service.life.sleep.is_sleeping)
        assert "top_p" in refusal(server, "/api/chat", {**unload, "options": {"top_p": "x"}})
        assert "budget" in refusal(server, "/api/chat", {**unload, "budget": 1000})
        assert n_loads == 1
        assert post(server, "/api/chat", {"model": "a"})["done_reason"] == "load"
        assert n_loads == 2


@pytest.fixture(scope="module")
def native() -> FakeNative:
    return FakeNative(script, n_slots=4, n_ctx_slot=256)
