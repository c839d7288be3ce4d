"""OpenAI's response."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dflash_local.server.answers.answer import Answer
from dflash_local.server.answers.generation import DraftingAnswer, ProgressAnswer, TimingsAnswer

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputPart(Answer):
    """Text of an answer or of thoughts."""

    type: Literal["output_text", "reasoning_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class OutputItem(Answer):
    """Thoughts, a message or a call."""

    type: Literal["reasoning", "message", "function_call"]
    id: str
    status: ItemStatus
    role: Literal["assistant"] | None = Field(None, description="of a message")
    content: list[OutputPart] | None = Field(None, description="of a message or of thoughts")
    summary: list[Any] | None = Field(None, description="of thoughts: none")
    encrypted_content: str | None = Field(None, description="of thoughts: to be sent back as it is")
    call_id: str | None = Field(None, description="of a call")
    name: str | None = Field(None, description="of the function")
    namespace: str | None = Field(None, description="of the function")
    arguments: str | None = Field(None, description="of a call, as JSON text")


class InputDetails(Answer):
    """Of the prompt's tokens."""

    cached_tokens: int = Field(description="taken from a slot's cache")
    cache_write_tokens: int


class OutputDetails(Answer):
    """Of the answer's tokens."""

    reasoning_tokens: int


class ResponseUsage(Answer):
    """Tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseFailure(Answer):
    """Why a response failed."""

    code: str
    message: str


class ResponseAnswer(Answer):
    """A response."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    error: ResponseFailure | None
    incomplete_details: dict[Literal["reason"], str] | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, Any]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None
    timings: TimingsAnswer | None = Field(None, description="of an answer that is not streamed")
    dflash: DraftingAnswer | None = Field(None, description="beside `timings`")


class ResponseEvent(Answer):
    """An event of a streamed response; its name is its `type`."""

    type: str = Field(description="`response.created`, `response.output_text.delta`, ...")
    sequence_number: int
    response: ResponseAnswer | None = None
    output_index: int | None = None
    content_index: int | None = None
    item_id: str | None = None
    item: OutputItem | None = None
    part: OutputPart | None = None
    delta: str | None = None
    text: str | None = None
    arguments: str | None = None
    name: str | None = None
    logprobs: list[Any] | None = None
    prompt_progress: ProgressAnswer | None = Field(None, description="in response.in_progress, with return_progress")
    timings: TimingsAnswer | None = Field(None, description="of the last event, or of all with timings_per_token")
    dflash: DraftingAnswer | None = Field(None, description="beside `timings`")


class InputTokens(Answer):
    """Length of a prompt."""

    object: Literal["response.input_tokens"]
    input_tokens: int
