"""OpenAI's response."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.timings import DraftingAnswer, ProgressAnswer, TimingsAnswer

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputPart(Answer):
    """Text of an answer or of thoughts."""

    type: Literal["output_text", "reasoning_text"]
    text: str
    annotations: NotRequired[list[Any]]
    logprobs: NotRequired[list[Any]]


class ItemHead(Answer):
    """What every item has."""

    id: str
    status: ItemStatus


class OutputItem(ItemHead):
    """Thoughts, a message or a call."""

    type: Literal["reasoning", "message", "function_call"]
    role: NotRequired[Annotated[Literal["assistant"], about("of a message")]]
    content: NotRequired[Annotated[list[OutputPart], about("of a message or of thoughts")]]
    summary: NotRequired[Annotated[list[Any], about("of thoughts: none")]]
    encrypted_content: NotRequired[Annotated[str | None, about("of thoughts: to be sent back as it is")]]
    call_id: NotRequired[Annotated[str, about("of a call")]]
    name: NotRequired[Annotated[str, about("of the function")]]
    namespace: NotRequired[Annotated[str, about("of the function")]]
    arguments: NotRequired[Annotated[str, about("of a call, as JSON text")]]


class InputDetails(Answer):
    """Details of the prompt's tokens."""

    cached_tokens: Annotated[int, about("taken from a slot's cache")]
    cache_write_tokens: int


class OutputDetails(Answer):
    """Details of the answer's tokens."""

    reasoning_tokens: int


class ResponseUsage(Answer):
    """How many tokens were read and written."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseFailure(Answer):
    """Why a response failed."""

    code: str
    message: str


class ResponseEcho(Answer):
    """What a response repeats of its request, with the defaults of what the request left out."""

    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, Any]
    parallel_tool_calls: bool
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    user: str | None


class ResponseOutcome(Answer):
    """The result so far."""

    completed_at: int | None
    error: ResponseFailure | None
    incomplete_details: dict[Literal["reason"], str] | None
    output: list[OutputItem]
    usage: ResponseUsage | None


class ResponseAnswer(ResponseEcho, ResponseOutcome):
    """A response."""

    id: str
    object: Literal["response"]
    created_at: int
    status: ResponseStatus
    background: Literal[False]
    model: str
    previous_response_id: None
    service_tier: Literal["default"]
    store: Literal[False]
    truncation: Literal["disabled"]
    timings: NotRequired[Annotated[TimingsAnswer, about("of an answer that is not streamed")]]
    dflash: NotRequired[Annotated[DraftingAnswer, about("beside `timings`")]]


class EventFields(Answer):
    """What an event may have."""

    response: NotRequired[ResponseAnswer]
    output_index: NotRequired[int]
    content_index: NotRequired[int]
    item_id: NotRequired[str]
    item: NotRequired[OutputItem]
    part: NotRequired[OutputPart]
    delta: NotRequired[str]
    text: NotRequired[str]
    arguments: NotRequired[str]
    name: NotRequired[str]
    logprobs: NotRequired[list[Any]]
    prompt_progress: NotRequired[Annotated[ProgressAnswer, about("in response.in_progress, with return_progress")]]
    timings: NotRequired[Annotated[TimingsAnswer, about("of the last event, or of all with timings_per_token")]]
    dflash: NotRequired[Annotated[DraftingAnswer, about("beside `timings`")]]


class ResponseEvent(EventFields):
    """An event of a streamed response; its name is its `type`."""

    type: Annotated[str, about("`response.created`, `response.output_text.delta`, ...")]
    sequence_number: int


class InputTokens(Answer):
    """Length of a prompt."""

    object: Literal["response.input_tokens"]
    input_tokens: int
