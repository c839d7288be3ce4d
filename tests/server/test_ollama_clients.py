"""Programs that speak only Ollama's API, against the pocket pair: the packages `ollama`, `langchain-ollama` and
`llm-ollama`. Answers are those of OpenAI's API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ollama
import pytest
from pydantic import BaseModel

from dflash_local.server.embeddings.options import ModelOptions
from dflash_local.server.settings import Settings
from tests.extras import needs
from tests.server import encoders
from tests.server.live import Live, live_pair

ASK: Any = [{"role": "user", "content": "What is 48 plus 24?"}]
WEATHER: Any = [{"role": "user", "content": "What is the weather in Lisbon?"}]
GREEDY: Any = {"temperature": 0, "num_predict": 120}
MODEL = "pocket"


class Sum(BaseModel):
    """What structured output is read into."""

    answer: int


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    return f"clear in {city}"


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    bert = encoders.write_bert(tmp_path_factory.mktemp("encoders") / "bert.gguf", encoders.weights())
    settings = Settings(
        alias=MODEL, model_path=str(pocket["target"]), embedding=ModelOptions(str(bert), "tiny-bert"), n_batch=512
    )
    with live_pair(pocket["target"], pocket["dflash"], settings, n_ctx=4096, n_slots=2) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Live) -> ollama.Client:
    return ollama.Client(host=server.url)


def plain(server: Live, messages: Any, **options: Any) -> Any:
    """The same from OpenAI's API."""
    return server.openai.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, **{"max_tokens": 120, **options}
    )


# ---- the package `ollama` ----


def test_a_chat_is_that_of_openais_api(server: Live, client: ollama.Client) -> None:
    expected = plain(server, ASK)
    whole = client.chat(MODEL, ASK, options=GREEDY, keep_alive="5m")
    parts = list(client.chat(MODEL, ASK, options=GREEDY, stream=True))
    assert whole.message.content == expected.choices[0].message.content
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert (whole.done, whole.done_reason) == (True, "stop")
    assert (whole.prompt_eval_count, whole.eval_count) == (
        expected.usage.prompt_tokens, expected.usage.completion_tokens,
    )  # fmt: skip
    assert whole.total_duration
    assert whole.eval_duration
    assert whole.total_duration > whole.eval_duration
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


def test_several_turns(server: Live, client: ollama.Client) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be short."}, *ASK]
    first = client.chat(MODEL, messages, options=GREEDY)
    turns = [*messages, first.message, *WEATHER]
    second = client.chat(MODEL, turns, options=GREEDY)
    as_openai = [*messages, {"role": "assistant", "content": first.message.content}, *WEATHER]
    assert second.message.content == plain(server, as_openai).choices[0].message.content


def test_tools_there_and_back(server: Live, client: ollama.Client) -> None:
    tools = [ollama._utils.convert_function_to_tool(get_weather).model_dump(exclude_none=True)]
    limited = {"temperature": 0, "num_predict": 200}
    whole = client.chat(MODEL, WEATHER, tools=[get_weather], options=limited)
    expected = plain(server, WEATHER, tools=tools, max_tokens=200).choices[0].message
    parts = list(client.chat(MODEL, WEATHER, tools=[get_weather], options=limited, stream=True))
    streamed = [call for part in parts for call in part.message.tool_calls or ()]
    assert whole.message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in whole.message.tool_calls] == [
        (call.function.name, json.loads(call.function.arguments)) for call in expected.tool_calls
    ]
    assert streamed == whole.message.tool_calls
    call = whole.message.tool_calls[0].function
    result = {"role": "tool", "tool_name": call.name, "content": get_weather(**call.arguments)}
    after = client.chat(MODEL, [*WEATHER, whole.message, result], tools=[get_weather], options=GREEDY)
    turns = [*WEATHER, expected.model_dump(exclude_none=True)]
    turns.append({"role": "tool", "tool_call_id": expected.tool_calls[0].id, "content": result["content"]})
    assert after.message.content == (plain(server, turns, tools=tools).choices[0].message.content or "")


def test_the_form_of_an_answer(server: Live, client: ollama.Client) -> None:
    schema = Sum.model_json_schema()
    whole = client.chat(MODEL, ASK, format=schema, options={"temperature": 0})
    Sum.model_validate_json(whole.message.content or "")
    form: Any = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    assert whole.message.content == plain(server, ASK, response_format=form).choices[0].message.content
    with pytest.raises(ollama.ResponseError, match=r"format\.properties\.a\.pattern"):
        client.chat(MODEL, ASK, format={"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}})
    text = client.generate(MODEL, ASK[0]["content"], format="json", options=GREEDY).response
    assert isinstance(json.loads(text or ""), dict)


def test_texts(server: Live, client: ollama.Client) -> None:
    prompt = ASK[0]["content"]
    whole = client.generate(MODEL, prompt, options=GREEDY)
    assert whole.response == plain(server, ASK).choices[0].message.content
    assert "".join(part.response or "" for part in client.generate(MODEL, prompt, options=GREEDY, stream=True)) == (
        whole.response
    )
    assert whole.context
    more = client.generate(MODEL, "And 2 more?", context=whole.context, options=GREEDY)
    assert more.context
    assert more.context[: len(whole.context)] == whole.context
    raw = client.generate(MODEL, "The sum is", raw=True, options={"temperature": 0, "num_predict": 8})
    text = server.openai.completions.create(model=MODEL, prompt="The sum is", temperature=0, max_tokens=8)
    assert raw.response == text.choices[0].text
    assert client.generate(MODEL).done_reason == "load"
    with pytest.raises(ollama.ResponseError, match="Infill is not supported by this model"):
        client.generate(MODEL, "a", suffix="b")


def test_facts_and_embeddings(client: ollama.Client) -> None:
    names = [model.model for model in client.list().models]
    assert names == ["pocket:latest", "tiny-bert:latest"]
    shown = client.show(MODEL)
    assert shown.modelinfo
    assert shown.modelinfo["qwen3.context_length"] == 2048
    assert shown.capabilities
    assert "tools" in shown.capabilities
    assert {model.name for model in client.ps().models} == set(names)
    assert all(model.expires_at for model in client.ps().models)
    vectors = client.embed("tiny-bert", ["a cat", "a dog"]).embeddings
    assert vectors[0] == client.embeddings("tiny-bert", "a cat").embedding
    assert len(vectors) == 2


def test_refusals_are_exceptions(server: Live, client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError) as missing:
        client.show("llama3.2")
    assert (missing.value.status_code, "pocket:latest" in missing.value.error) == (404, True)
    with pytest.raises(ollama.ResponseError, match="dflash-local pull") as pull:
        list(client.pull("llama3.2", stream=True))
    assert pull.value.status_code == 501
    with pytest.raises(ollama.ResponseError, match="image input is not supported"):
        client.chat(MODEL, [{"role": "user", "content": "what is it?", "images": ["aGVsbG8="]}])
    with pytest.raises(ollama.ResponseError, match="context"):
        client.chat(MODEL, [{"role": "user", "content": "x " * 5000}], stream=False)
    for action in (client.delete, client.push):
        with pytest.raises(ollama.ResponseError):
            action(MODEL)
    with pytest.raises(ollama.ResponseError):
        client.copy(MODEL, "other")


def test_the_asynchronous_client(server: Live, client: ollama.Client) -> None:
    async def ask() -> str:
        parts = await ollama.AsyncClient(host=server.url).chat(MODEL, ASK, options=GREEDY, stream=True)
        return "".join([part.message.content or "" async for part in parts])

    assert asyncio.run(ask()) == client.chat(MODEL, ASK, options=GREEDY).message.content


# ---- LangChain ----


@pytest.fixture(scope="module")
def langchain(server: Live) -> Any:
    from langchain_ollama import ChatOllama

    return ChatOllama(
        model=MODEL, base_url=server.url, temperature=0, num_predict=120, num_ctx=4096, validate_model_on_init=True
    )


def test_langchain(server: Live, langchain: Any) -> None:
    question = ASK[0]["content"]
    whole = langchain.invoke(question)
    assert whole.text == plain(server, ASK).choices[0].message.content
    assert "".join(chunk.text for chunk in langchain.stream(question)) == whole.text
    assert whole.usage_metadata["output_tokens"] == whole.response_metadata["eval_count"] > 5


def test_langchain_tools(langchain: Any) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    bound = langchain.bind_tools([get_weather])
    ask = HumanMessage(WEATHER[0]["content"])
    answer = bound.invoke([ask])
    assert [call["name"] for call in answer.tool_calls] == ["get_weather"]
    call = answer.tool_calls[0]
    result = ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"], name=call["name"])
    assert bound.invoke([ask, answer, result]).response_metadata["done"]


def test_langchain_structured_output(langchain: Any) -> None:
    found = langchain.with_structured_output(Sum, method="json_schema").invoke(ASK[0]["content"])
    assert isinstance(found, Sum)


def test_langchain_embeddings(server: Live, client: ollama.Client) -> None:
    from langchain_ollama import OllamaEmbeddings

    vectors = OllamaEmbeddings(model="tiny-bert", base_url=server.url).embed_documents(["a cat", "a dog"])
    assert vectors == [list(vector) for vector in client.embed("tiny-bert", ["a cat", "a dog"]).embeddings]


# ---- llm ----


def test_llm(server: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs("llm_ollama")
    monkeypatch.setenv("OLLAMA_HOST", server.url)
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    import llm

    def weather(city: str) -> str:
        """The weather of a city"""
        return get_weather(city)

    short = llm.Tool.function(weather, name="get_weather")
    assert "ollama/pocket:latest" in [model.model_id for model in llm.get_models()]
    model: Any = llm.get_model("ollama/pocket")
    response = model.prompt(ASK[0]["content"], temperature=0, num_predict=120)
    assert response.text() == plain(server, ASK).choices[0].message.content
    assert isinstance(json.loads(model.prompt(ASK[0]["content"], schema=Sum, temperature=0).text()), dict)
    asked = model.prompt(WEATHER[0]["content"], tools=[short], temperature=0, num_predict=200)
    assert [(call.name, call.arguments.keys()) for call in asked.tool_calls()] == [("get_weather", {"city"})]
