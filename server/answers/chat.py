"""OpenAI's chat completion."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dflash_local.server.answers.answer import Answer
from dflash_local.server.answers.generation import DraftingAnswer, ProgressAnswer, TimingsAnswer, Usage
from dflash_local.server.answers.native import NativeCompletion
from dflash_local.server.answers.probs import ChatLogprobs

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


class CalledFunction(Answer):
    """The function and its arguments, as JSON text."""

    name: str
    arguments: str


class CallAnswer(Answer):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Answer):
    """The answer."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | None = None
    tool_calls: list[CallAnswer] = Field(default_factory=list)


class ChatChoice(Answer):
    """One of the answers."""

    index: int
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = Field(None, description="with logprobs or n_probs")


class ChatCompletion(Answer):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    timings: TimingsAnswer
    dflash: DraftingAnswer
    verbose: NativeCompletion | None = Field(None, alias="__verbose", description="with verbose")


class FunctionDelta(Answer):
    """More of a call."""

    name: str | None = None
    arguments: str | None = None


class CallDelta(Answer):
    """More of the call number `index`."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta | None = None


class Delta(Answer):
    """More of the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallDelta] | None = None


class ChatDeltaChoice(Answer):
    """More of one of the answers."""

    index: int
    delta: Delta
    finish_reason: FinishReason | None
    logprobs: ChatLogprobs | None = Field(None, description="with logprobs or n_probs")


class ChatCompletionChunk(Answer):
    """An event of a streamed chat completion; the stream ends with `data: [DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatDeltaChoice]
    usage: Usage | None = Field(None, description="of the last event, if stream_options.include_usage asks for it")
    timings: TimingsAnswer | None = Field(None, description="of the last event, or of all with timings_per_token")
    dflash: DraftingAnswer | None = Field(None, description="beside `timings`")
    verbose: NativeCompletion | None = Field(None, alias="__verbose", description="of the last event, with verbose")
    prompt_progress: ProgressAnswer | None = Field(None, description="with return_progress, before any text")
