"""OpenAI's chat completion."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.completion import ChunkFields, WholeFields
from dflash_local.server.shapes.probs import ChatLogprobs

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
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[CallAnswer]]


class ChatChoice(Answer):
    """One of the answers."""

    index: int
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: NotRequired[Annotated[ChatLogprobs, about("with logprobs or n_probs")]]


class ChatCompletion(WholeFields):
    """A chat completion."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class FunctionDelta(Answer):
    """More of a call."""

    name: NotRequired[str]
    arguments: NotRequired[str]


class CallDelta(Answer):
    """More of call number `index`."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: NotRequired[FunctionDelta]


class Delta(Answer):
    """More of the message."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str | None]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[CallDelta]]


class ChatDeltaChoice(Answer):
    """More of one of the answers."""

    index: int
    delta: Delta
    finish_reason: FinishReason | None
    logprobs: NotRequired[Annotated[ChatLogprobs, about("with logprobs or n_probs")]]


class ChatCompletionChunk(ChunkFields):
    """An event of a streamed chat completion; the stream ends with `data: [DONE]`."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatDeltaChoice]
