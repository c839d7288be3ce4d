"""OpenAI's text completion."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dflash_local.server.answers.answer import Answer
from dflash_local.server.answers.generation import DraftingAnswer, ProgressAnswer, TimingsAnswer, Usage
from dflash_local.server.answers.native import NativeCompletion
from dflash_local.server.answers.probs import TextLogprobs


class TextChoice(Answer):
    """One of the answers, or more of it."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length", "cancelled"] | None


class TextBody(Answer):
    """What both have."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]


class TextCompletionChunk(TextBody):
    """An event of a streamed completion; the stream ends with `data: [DONE]`."""

    usage: Usage | None = Field(None, description="of the last event, if stream_options.include_usage asks for it")
    timings: TimingsAnswer | None = Field(None, description="of the last event, or of all with timings_per_token")
    dflash: DraftingAnswer | None = Field(None, description="beside `timings`")
    verbose: NativeCompletion | None = Field(None, alias="__verbose", description="of the last event, with verbose")
    prompt_progress: ProgressAnswer | None = Field(None, description="with return_progress, before any text")


class TextCompletion(TextBody):
    """A completion."""

    usage: Usage
    timings: TimingsAnswer
    dflash: DraftingAnswer
    verbose: NativeCompletion | None = Field(None, alias="__verbose", description="with verbose")
