"""Anthropic's message."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.timings import DraftingAnswer, ProgressAnswer, TimingsAnswer

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]
MessageErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "timeout_error",
    "request_too_large",
    "rate_limit_error",
    "overloaded_error",
    "api_error",
]


class TextBlock(Answer):
    """What the model says."""

    type: Literal["text"]
    text: str


class ThinkingBlock(Answer):
    """What it thought."""

    type: Literal["thinking"]
    thinking: Annotated[str, about("empty if thinking.display is omitted")]
    signature: Annotated[str, about("to be sent back as it is")]


class ToolUseBlock(Answer):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class ThinkingTokens(Answer):
    """Details of the answer's tokens."""

    thinking_tokens: int


class MessageUsage(Answer):
    """Tokens; the prompt's are the sum of the first three."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: Annotated[int, about("taken from a slot's cache")]
    output_tokens: int
    output_tokens_details: ThinkingTokens


class Message(Answer):
    """A message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Block]
    stop_reason: Annotated[StopReason | None, about("null in the first event of a stream")]
    stop_sequence: str | None
    usage: MessageUsage


class MessageTokens(Answer):
    """Length of a prompt."""

    input_tokens: int


class BlockDelta(Answer):
    """More of a block."""

    type: Literal["text_delta", "thinking_delta", "signature_delta", "input_json_delta"]
    text: NotRequired[str]
    thinking: NotRequired[str]
    signature: NotRequired[str]
    partial_json: NotRequired[str]


class MessageDelta(Answer):
    """How the message ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageErrorDetail(Answer):
    """What went wrong."""

    type: MessageErrorType
    message: str
    details: NotRequired[Annotated[dict[str, Any], about("of a `thread`, which is refused")]]


class MessageError(Answer):
    """An error, whole or as a stream's last event."""

    type: Literal["error"]
    error: MessageErrorDetail


class MessageEvent(Answer):
    """An event of a streamed message; its name is its `type`."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]
    message: NotRequired[Message]
    index: NotRequired[Annotated[int, about("of the block")]]
    content_block: NotRequired[Block]
    delta: NotRequired[BlockDelta | MessageDelta]
    usage: NotRequired[Annotated[MessageUsage, about("in message_delta")]]
    error: NotRequired[MessageErrorDetail]
    prompt_progress: NotRequired[Annotated[ProgressAnswer, about("in ping, with return_progress")]]
    timings: NotRequired[Annotated[TimingsAnswer, about("with timings_per_token")]]
    dflash: NotRequired[Annotated[DraftingAnswer, about("beside `timings`")]]
