"""Keyword arguments of the methods that generate: what type checkers see is what the methods take."""

from __future__ import annotations

import inspect
from typing import get_type_hints

from typing_extensions import assert_type

from dflash_local.conversation import CHAT_FIELDS, ChatCompletion, ChatDelta, ChatPrompt
from dflash_local.engine import Engine
from dflash_local.generation import Chunk, Completion, Generation, Stream
from dflash_local.keywords import ChatKeywords, GenerateKeywords, SamplingKeywords, SubmitChatKeywords, SubmitKeywords
from dflash_local.request_options import RequestOptions
from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams


def test_they_are_the_fields_of_their_classes() -> None:
    request, sampling = get_type_hints(RequestOptions), get_type_hints(SamplingParams)
    for name in ("prompt_tokens", "sampling", "_"):
        request.pop(name, None)
    assert get_type_hints(SamplingKeywords) == sampling
    assert get_type_hints(SubmitKeywords) == request
    assert get_type_hints(GenerateKeywords) == request | sampling
    named = inspect.signature(Engine.submit_chat).parameters.keys()
    assert get_type_hints(SubmitChatKeywords) == {name: kind for name, kind in request.items() if name not in named}


def test_those_of_a_chat() -> None:
    own = get_type_hints(ChatKeywords).keys() - get_type_hints(GenerateKeywords).keys()
    assert own == CHAT_FIELDS - SAMPLING_FIELDS - {"messages"}


def calls(engine: Engine, prompt: ChatPrompt, options: SubmitKeywords) -> None:
    """Never called: mypy reads it, and complains of an `ignore` that it does not need."""
    assert_type(engine.generate("x", max_tokens=1, temperature=0, stop=["a"], budget="auto"), Completion)
    assert_type(engine.stream([1, 2], SamplingParams(), grammar="x", draft="chain"), Stream[Chunk])
    assert_type(engine.chat([], tools=[{"type": "function"}], enable_thinking=False, top_k=1), ChatCompletion)
    assert_type(engine.chat([], stream=True, response_format={"type": "text"}), Stream[ChatDelta])
    assert_type(engine.submit_chat(prompt, stop="a", max_tokens=1), Generation)
    assert_type(engine.submit([1], SamplingParams(), **options), Generation)
    assert_type(engine.submit_chat(prompt, **options), Generation)
    options["max_tokens"] = "1"  # type: ignore[typeddict-item]
    engine.generate("x", max_token=1)  # type: ignore[call-arg]
    engine.generate("x", max_tokens="1")  # type: ignore[arg-type]
    engine.generate("x", tools=[])  # type: ignore[call-arg]
    engine.stream("x", draft="trees")  # type: ignore[arg-type]
    engine.chat([], temprature=0)  # type: ignore[call-overload]
    engine.submit_chat(prompt, temperature=0)  # type: ignore[call-arg]
