"""The helpers of the official SDKs, and of LangChain, against the pocket pair: streams, tools there and back,
structured output, errors as exceptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

from dflash_local.server.settings import Settings
from tests.extras import needs
from tests.server.live import Live, live_pair

ASK: Any = [{"role": "user", "content": "What is 48 plus 24?"}]
WEATHER: Any = [{"role": "user", "content": "What is the weather in Lisbon?"}]
CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": CITY}}
RESPONSES_TOOL: Any = {"type": "function", "name": "get_weather", "strict": True, "parameters": CITY}
MESSAGES_TOOL: Any = {"name": "get_weather", "description": "The weather of a city", "input_schema": CITY}
RESULT = '{"sky": "clear"}'
GREEDY: Any = {"temperature": 0}


class Sum(BaseModel):
    """What structured output is read into."""

    answer: int


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[Live]:
    with live_pair(pocket["target"], pocket["dflash"], Settings(alias="pocket"), n_ctx=4096, n_slots=2) as running:
        yield running


@pytest.fixture(scope="module")
def claude(server: Live) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


# ---- openai, chat completions ----


def test_chat_stream(server: Live) -> None:
    chat = server.openai.chat.completions
    options: Any = {"model": "pocket", "messages": ASK, "temperature": 0, "max_tokens": 120}
    with chat.stream(**options, stream_options={"include_usage": True}) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    whole = chat.create(**options)
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason
    assert final.usage is not None
    assert whole.usage is not None
    assert final.usage.completion_tokens == whole.usage.completion_tokens


def test_chat_stream_of_a_call(server: Live) -> None:
    options: Any = {"model": "pocket", "messages": WEATHER, "temperature": 0, "max_tokens": 200}
    tools: Any = {"tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    with server.openai.chat.completions.stream(**options, **tools) as stream:
        events = list(stream)
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls
    call = message.tool_calls[0]
    assert call.function.parsed_arguments == json.loads(call.function.arguments)
    assert "city" in json.loads(call.function.arguments)
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.arguments for event in done] == [call.function.arguments]

    follow_up: Any = [
        *WEATHER,
        message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}),
        {"role": "tool", "tool_call_id": call.id, "content": RESULT},
    ]
    answer = server.openai.chat.completions.create(**{**options, "messages": follow_up, "max_tokens": 20})
    assert answer.choices[0].message.role == "assistant"


def test_chat_parse(server: Live) -> None:
    parsed = server.openai.chat.completions.parse(
        model="pocket", messages=ASK, response_format=Sum, temperature=0, max_tokens=200
    )
    assert isinstance(parsed.choices[0].message.parsed, Sum)
    with server.openai.chat.completions.stream(
        model="pocket", messages=ASK, response_format=Sum, temperature=0, max_tokens=200
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == parsed.choices[0].message.parsed
    with pytest.raises(openai.LengthFinishReasonError):
        server.openai.chat.completions.parse(model="pocket", messages=ASK, response_format=Sum, max_tokens=2)


# ---- openai, responses ----


def test_responses_stream(server: Live) -> None:
    options: Any = {"model": "pocket", "input": "What is 48 plus 24?", "temperature": 0, "max_output_tokens": 120}
    with server.openai.responses.stream(**options) as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(texts) == final.output_text == server.openai.responses.create(**options).output_text


def test_responses_tools_there_and_back(server: Live) -> None:
    options: Any = {"model": "pocket", "temperature": 0, "tools": [RESPONSES_TOOL], "parallel_tool_calls": False}
    with server.openai.responses.stream(
        **options, input=WEATHER, tool_choice="required", max_output_tokens=200
    ) as stream:
        events = list(stream)
        response = stream.get_final_response()
    call = response.output[-1]
    assert call.type == "function_call"
    assert "city" in json.loads(call.arguments)
    assert [event.arguments for event in events if event.type == "response.function_call_arguments.done"] == [
        call.arguments
    ]
    follow_up: Any = [*WEATHER, *(item.to_dict() for item in response.output)]
    follow_up.append({"type": "function_call_output", "call_id": call.call_id, "output": RESULT})
    answer = server.openai.responses.create(**options, input=follow_up, max_output_tokens=20)
    assert answer.usage is not None
    assert answer.usage.input_tokens_details.cached_tokens > 100


def test_responses_parse(server: Live) -> None:
    options: Any = {"model": "pocket", "input": "What is 48 plus 24?", "temperature": 0, "max_output_tokens": 200}
    parsed = server.openai.responses.parse(**options, text_format=Sum)
    assert isinstance(parsed.output_parsed, Sum)
    with server.openai.responses.stream(**options, text_format=Sum) as stream:
        assert stream.get_final_response().output_parsed == parsed.output_parsed


def test_errors_of_openai(server: Live) -> None:
    client = server.openai
    with pytest.raises(openai.BadRequestError) as bad:
        client.responses.create(model="pocket", input="hi", previous_response_id="resp_1")
    assert bad.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="pocket", messages=[{"role": "user", "content": "x " * 5000}])
    assert long.value.code == "context_length_exceeded"


# ---- anthropic ----


def test_messages_stream(claude: anthropic.Anthropic) -> None:
    options: Any = {"model": "pocket", "messages": ASK, "max_tokens": 60, "extra_body": GREEDY}
    with claude.messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    whole = claude.messages.create(**options)
    assert text == final.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


def test_messages_tools_there_and_back(claude: anthropic.Anthropic) -> None:
    options: Any = {"model": "pocket", "tools": [MESSAGES_TOOL], "extra_body": GREEDY}
    one: Any = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    with claude.messages.stream(**options, messages=WEATHER, tool_choice=one, max_tokens=200) as stream:
        inputs = [event.snapshot for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    call = message.content[-1]
    assert call.type == "tool_use"
    assert message.stop_reason == "tool_use"
    assert call.input == inputs[-1]
    assert "city" in call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    follow_up: Any = [
        *WEATHER,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result]},
    ]
    answer = claude.messages.create(**options, messages=follow_up, max_tokens=20)
    assert answer.usage.cache_read_input_tokens
    assert answer.usage.cache_read_input_tokens > 100
    counted = claude.messages.count_tokens(model="pocket", messages=follow_up, tools=[MESSAGES_TOOL])
    assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def test_messages_parse(claude: anthropic.Anthropic) -> None:
    options: Any = {"model": "pocket", "messages": ASK, "max_tokens": 200, "output_format": Sum, "extra_body": GREEDY}
    parsed = claude.messages.parse(**options)
    assert isinstance(parsed.parsed_output, Sum)
    with claude.messages.stream(**options) as stream:
        assert stream.get_final_message().parsed_output == parsed.parsed_output


def test_the_tool_runner(claude: anthropic.Anthropic) -> None:
    """The SDK's own loop: it calls the function and sends its result back."""
    asked: list[str] = []

    @anthropic.beta_tool(name="get_weather", description="The weather of a city", input_schema=CITY)
    def get_weather(city: str) -> str:
        asked.append(city)
        return RESULT

    runner = claude.beta.messages.tool_runner(
        model="pocket",
        messages=WEATHER,
        tools=[get_weather],
        max_tokens=200,
        max_iterations=2,
        extra_body={**GREEDY, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    )
    turns = list(runner)
    assert len(turns) == 2
    assert asked


# ---- LangChain ----


@pytest.fixture(scope="module", params=[False, True], ids=["chat", "responses"])
def langchain(server: Live, request: pytest.FixtureRequest) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model="pocket",
        base_url=f"{server.url}/v1",
        api_key="none",  # type: ignore[arg-type]
        temperature=0,
        max_tokens=200,  # type: ignore[call-arg]
        max_retries=0,
        stream_usage=True,
        use_responses_api=request.param,
    )


def test_langchain(langchain: Any) -> None:
    question = "What is 48 plus 24?"
    whole = langchain.invoke(question)
    streamed = None
    for chunk in langchain.stream(question):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed is not None
    assert streamed.text == whole.text
    assert whole.text
    assert streamed.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"] > 5


def test_langchain_tools(langchain: Any) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"{RESULT} in {city[:3]}"

    bound = langchain.bind_tools([get_weather], tool_choice="get_weather", parallel_tool_calls=False)
    ask = HumanMessage("What is the weather in Lisbon?")
    answer = bound.invoke([ask])
    assert [call["name"] for call in answer.tool_calls] == ["get_weather"]
    result = get_weather.invoke(answer.tool_calls[0])
    assert isinstance(result, ToolMessage)
    final = langchain.bind_tools([get_weather], tool_choice="none").invoke([ask, answer, result])
    assert final.tool_calls == []
    assert final.usage_metadata["input_token_details"]["cache_read"] > 20


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structured_output(langchain: Any, method: str) -> None:
    found = langchain.with_structured_output(Sum, method=method).invoke("What is 48 plus 24?")
    assert isinstance(found, Sum)


# ---- litellm ----


@pytest.fixture(scope="module")
def litellm(server: Live) -> Iterator[Any]:
    """The module, which would ask the network for prices when it is imported."""
    needs("litellm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        patch.setenv("LITELLM_TELEMETRY", "False")
        import litellm as module

        yield module


@pytest.mark.slow
def test_litellm_chat(server: Live, litellm: Any) -> None:
    """As aider and others ask: OpenAI's API at a base of one's own."""
    options = {"model": "openai/pocket", "api_base": f"{server.url}/v1", "api_key": "none", "temperature": 0}
    whole = litellm.completion(**options, messages=ASK, max_tokens=120)
    streamed = litellm.completion(
        **options, messages=ASK, max_tokens=120, stream=True, stream_options={"include_usage": True}
    )
    built = litellm.stream_chunk_builder(list(streamed), messages=ASK)
    # It cuts thoughts out of whole answers by itself: the pocket model's own template leaves them in the text.
    assert built.choices[0].message.content.endswith(whole.choices[0].message.content)
    assert built.usage.completion_tokens == whole.usage.completion_tokens > 5
    tools = {"tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}
    call = litellm.completion(**options, messages=WEATHER, **tools).choices[0].message.tool_calls[0]
    assert "city" in json.loads(call.function.arguments)
    parsed = litellm.completion(**options, messages=ASK, max_tokens=200, response_format=Sum)
    Sum.model_validate_json(parsed.choices[0].message.content)
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**options, messages=[{"role": "user", "content": "x " * 5000}])


@pytest.mark.slow
def test_litellm_messages_and_responses(server: Live, litellm: Any) -> None:
    answer = litellm.completion(
        model="anthropic/pocket", api_base=server.url, api_key="none", temperature=0, messages=ASK, max_tokens=120
    )
    plain = server.openai.chat.completions.create(model="pocket", messages=ASK, temperature=0, max_tokens=120)
    assert answer.choices[0].message.content == plain.choices[0].message.content
    options = {"model": "openai/pocket", "api_base": f"{server.url}/v1", "api_key": "none", "max_output_tokens": 120}
    response = litellm.responses(**options, input="What is 48 plus 24?", temperature=0)
    assert response.output[0].content[0].text == plain.choices[0].message.content
    kinds = [str(event.type) for event in litellm.responses(**options, input="What is 48 plus 24?", stream=True)]
    assert "completed" in kinds[-1].lower()
