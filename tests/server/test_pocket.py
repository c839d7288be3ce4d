"""The pocket pair behind the real server, asked by the openai client; and `dflash-local serve` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from dflash_local.server.settings import Settings
from tests.patience import PATIENCE, wait_until
from tests.server.live import Live, live_pair, serving

MESSAGES: Any = [{"role": "user", "content": "What is 48 plus 24?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[Live]:
    with live_pair(pocket["target"], pocket["dflash"], Settings(alias="pocket"), n_ctx=8192, n_slots=4) as running:
        yield running


def test_http_says_what_the_engine_says(server: Live) -> None:
    """With a given budget: on a busy machine the engine's own choice may be not to draft."""
    options: Any = {"model": "pocket", "messages": MESSAGES, "temperature": 0, "max_tokens": 90}
    options |= {"extra_body": {"budget": 8}}
    whole = server.engine.chat(MESSAGES, temperature=0, max_tokens=90, budget=8)
    answer = server.openai.chat.completions.create(**options)
    stream = server.openai.chat.completions.create(**options, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert answer.choices[0].message.content == streamed == whole.text
    timings = answer.model_extra["timings"]
    assert timings["draft_n_accepted"] > 0
    assert answer.model_extra["dflash"]["acceptance_length"] > 1.2


def test_seed_and_choices(server: Live) -> None:
    def ask() -> list[str | None]:
        answer = server.openai.chat.completions.create(
            model="pocket", messages=MESSAGES, temperature=1.2, seed=3, n=3, max_tokens=40
        )
        return [choice.message.content for choice in answer.choices]

    texts = ask()
    assert texts == ask()
    assert len(set(texts)) > 1
    alone = server.engine.chat(MESSAGES, temperature=1.2, seed=4, max_tokens=40)
    assert texts[1] == alone.text


def test_tool_call(server: Live) -> None:
    messages: Any = [{"role": "user", "content": "What is the weather in Lisbon?"}]
    options: Any = {"tools": TOOLS, "tool_choice": "required", "temperature": 0, "max_tokens": 80}
    answer = server.openai.chat.completions.create(model="pocket", messages=messages, **options)
    whole = answer.choices[0].message.tool_calls[0].function
    assert answer.choices[0].finish_reason == "tool_calls"
    assert "city" in json.loads(whole.arguments)

    name, arguments = "", ""
    for chunk in server.openai.chat.completions.create(model="pocket", messages=messages, stream=True, **options):
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert (name, arguments) == (whole.name, whole.arguments)

    result = {"role": "tool", "tool_call_id": "x", "content": '{"sky": "clear"}'}
    follow_up: Any = [*messages, answer.choices[0].message.model_dump(), result]
    assert (
        server.openai.chat.completions.create(model="pocket", messages=follow_up, tools=TOOLS, max_tokens=30)
        .choices[0]
        .message
    )


def test_json(server: Live) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    for response_format in (
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    ):
        stream = server.openai.chat.completions.create(
            model="pocket",
            messages=MESSAGES,
            response_format=response_format,
            temperature=0,
            max_tokens=300,
            stream=True,  # type: ignore[call-overload]
        )
        value = json.loads("".join(chunk.choices[0].delta.content or "" for chunk in stream))
        assert isinstance(value, dict)
    assert type(value["answer"]) is int


def test_grammar_and_stop_in_a_completion(server: Live) -> None:
    grammar = {"grammar": 'root ::= "1" "2" "3" "4567" "8"'}
    answer = server.openai.completions.create(
        model="pocket", prompt="Count: ", temperature=0, stop=["7"], extra_body=grammar
    )
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("123456", "stop")


def test_a_continued_answer(server: Live) -> None:
    messages: Any = [*MESSAGES, {"role": "assistant", "content": "The answer"}]
    prompt = server.http.post("/apply-template", json={"messages": messages}).json()["prompt"]
    assert prompt.endswith("The answer")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": MESSAGES, "grammar": "root ::= ("}, "grammar"),
        ({"messages": MESSAGES, "samplers": ["magic"]}, "samplers[0]"),
        ({"messages": MESSAGES, "logit_bias": {"x": "y"}}, "logit_bias.x"),
        ({"messages": MESSAGES, "tools": [{}]}, "tools[0].type"),
    ],
)
def test_native_refusals_name_the_parameter(server: Live, body: dict[str, Any], param: str) -> None:
    response = server.http.post("/v1/chat/completions", json={**body, "stream": True})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_context_length(server: Live) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.openai.completions.create(model="pocket", prompt=[5] * 2048)
    assert caught.value.code == "context_length_exceeded"


def test_metrics_count_drafts(server: Live) -> None:
    server.openai.chat.completions.create(model="pocket", messages=MESSAGES, temperature=0, max_tokens=60)
    text = server.http.get("/metrics").text
    positions = [
        line for line in text.splitlines() if line.startswith("llamacpp:spec_decode_num_accepted_tokens_per_pos_total{")
    ]
    counts = [int(line.split()[1]) for line in positions]
    assert counts == sorted(counts, reverse=True)  # a chain: who goes deep has passed the shallow
    assert counts[0] > 0
    total = next(
        line for line in text.splitlines() if line.startswith("llamacpp:spec_decode_num_accepted_tokens_total")
    )
    assert sum(counts) == int(total.split()[1])


# ---- the command ----


def test_serve_and_sigterm(pocket: dict[str, Path]) -> None:
    env = {
        "LLAMA_ARG_MODEL": str(pocket["target"]),
        "LLAMA_ARG_N_PARALLEL": "2",
        "LLAMA_ARG_CTX_SIZE": "999",
        "LLAMA_API_KEY": "secret",
    }
    flags = ["-md", pocket["dflash"], "-c", "2048", "-t", "1", "--no-warmup", "--jinja", "--alias", "mine"]
    headers = {"Authorization": "Bearer secret"}
    with serving(flags, env) as (process, url):
        assert httpx.get(url + "/v1/models").status_code == 401
        assert httpx.get(url + "/v1/models", headers=headers).json()["data"][0]["id"] == "mine"
        slots = httpx.get(url + "/slots", headers=headers).json()
        assert [slot["n_ctx"] for slot in slots] == [1024, 1024]  # the flag beats the variable
        body = {"messages": MESSAGES, "ignore_eos": True, "temperature": 0, "max_tokens": 700, "budget": 1}
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(httpx.post, url + "/v1/chat/completions", json=body, headers=headers, timeout=60)
            wait_until(lambda: any(slot["is_processing"] for slot in httpx.get(url + "/slots", headers=headers).json()))
            process.send_signal(signal.SIGTERM)
            assert answer.result(60).json()["usage"]["completion_tokens"] == 700
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("loaded", [False, True])
def test_ctrl_c(pocket: dict[str, Path], loaded: bool) -> None:
    """As a terminal sends it: to the whole process group, while the model loads or when nothing runs."""
    flags = ["-m", pocket["target"], "-md", pocket["dflash"], "-c", "1024", "-t", "1"]
    with serving(flags, wait=loaded) as (process, _):
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 0


TARGET = Path(__file__).parents[2] / "dflash_local" / "demo" / "pocket-target.gguf"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-m", str(TARGET), "--port", "99999"], "cannot listen"),
        (["-m", "nowhere.gguf"], "nowhere.gguf"),
        (["-m", "x.gguf", "--chat-template-kwargs", "{"], "not valid JSON"),
        (["-m", "x.gguf", "--api-key-file", "nowhere"], "cannot read the API keys"),
        (["-m", "x.gguf", "--temp", "-1"], "temperature must be at least 0"),
        (["-m", "x.gguf", "--dry-base", "0.5"], "dry_base must be at least 1, got 0.5"),
    ],
)
def test_what_cannot_start_says_why(flags: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dflash_local.cli", "serve", "--port", "0", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert message in next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert "Traceback" not in done.stderr


def test_an_answer_is_quoted_for_its_key_alone(pocket: dict[str, Path]) -> None:
    def quoted(key: str) -> dict[str, int]:
        body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 60, "budget": 8, "cache_prompt": False}
        answer = server.http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}).json()
        texts.add(answer["choices"][0]["message"]["content"])
        return {name: answer["dflash"][name] for name in ("answers_n", "answers_n_accepted")}

    texts: set[str] = set()
    with live_pair(
        pocket["target"], settings=Settings(api_keys=("mine", "yours")), n_ctx=2048, lookup_answers=5000, cache_ram=0
    ) as server:
        assert quoted("mine")["answers_n"] == 0
        assert quoted("yours")["answers_n"] == 0
        assert quoted("mine")["answers_n_accepted"] > 10
        metrics = server.http.get("/metrics", headers={"X-Api-Key": "mine"}).text
        assert 'dflash:quoted_tokens_total{source="answers"}' in metrics
    assert len(texts) == 1
