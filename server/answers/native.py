"""llama-server's own completion."""

from __future__ import annotations

from typing import Literal

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
    completion_probabilities: list[TokenAnswer] | None = Field(None, description="with n_probs")
    timings: TimingsAnswer | None = Field(None, description="with timings_per_token")
    dflash: DraftingAnswer | None = Field(None, description="beside `timings`")
    prompt_progress: ProgressAnswer | None = Field(None, description="with return_progress, before any text")


class NativeCompletion(Answer):
    """A completion. As the last event of a stream it has no `content` and `tokens` but empty ones."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[True]
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    stop_type: Literal["word", "eos", "limit"]
    stopping_word: str
    completion_probabilities: list[TokenAnswer] | None = Field(None, description="with n_probs")
    timings: TimingsAnswer
    dflash: DraftingAnswer


class NativeCompletions(Answer):
    """The completions of several prompts."""

    results: list[NativeCompletion]
    timings: TimingsAnswer
    dflash: DraftingAnswer


class NativeUsage(Answer):
    """The last event, if stream_options.include_usage asks for it."""

    stop: Literal[True]
    usage: Usage
    timings: TimingsAnswer | None = Field(None)
    dflash: DraftingAnswer | None = Field(None, description="beside `timings`")


class NativeEvent(RootModel[NativeChunk | NativeCompletion | NativeUsage]):
    """An event of a stream."""
