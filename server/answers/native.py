"""llama-server's own completion."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, RootModel

from dflash_local.server.answers.answer import Answer
from dflash_local.server.answers.generation import DraftingAnswer, ProgressAnswer, TimingsAnswer, Usage
from dflash_local.server.answers.probs import TokenAnswer


class NativeChunk(Answer):
    """An event of a stream before the last."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[False]
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int
    completion_probabilities: list[TokenAnswer] | None = Field(None, description="with n_probs")
    timings: TimingsAnswer | None = Field(None, description="with timings_per_token")
    dflash: DraftingAnswer | None = Field(None, description="beside `timings`")
    prompt_progress: ProgressAnswer | None = Field(None, description="with return_progress, before any text")


class NativeCompletion(Answer):
    """A completion. As the last event of a stream it has no `content` and `tokens` but empty ones."""

    index: int
    content: str
    tokens: list[int] = Field(description="if return_tokens asks for them")
    id_slot: int = Field(description="where it was written; -1: nowhere")
    stop: Literal[True]
    model: str
    tokens_predicted: int
    tokens_evaluated: int = Field(description="tokens of the prompt")
    tokens_cached: int = Field(description="tokens that the slot holds now")
    generation_settings: dict[str, Any] = Field(description="what the request asked for, with all defaults")
    prompt: str = Field(description="as the model's tokens write it")
    has_new_line: bool
    truncated: bool = Field(description="the context was full")
    stop_type: Literal["word", "eos", "limit"]
    stopping_word: str
    completion_probabilities: list[TokenAnswer] | None = Field(None, description="with n_probs")
    timings: TimingsAnswer
    dflash: DraftingAnswer


class NativeFields(RootModel[dict[str, Any]]):
    """Fields of a completion, if response_fields names them."""


class NativeCompletions(RootModel[list[NativeCompletion | NativeFields]]):
    """The completions of several prompts."""


class NativeUsage(Answer):
    """The last event, if stream_options.include_usage asks for it."""

    stop: Literal[True]
    usage: Usage
    dflash: DraftingAnswer | None = Field(None, description="beside `timings`")


class NativeEvent(RootModel[NativeChunk | NativeCompletion | NativeUsage | NativeFields]):
    """An event of a stream."""
