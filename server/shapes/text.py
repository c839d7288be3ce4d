"""OpenAI's text completion."""

from __future__ import annotations

from typing import Literal

from dflash_local.generation import FinishReason
from dflash_local.server.shapes.answer import Answer
from dflash_local.server.shapes.completion import ChunkFields, WholeFields
from dflash_local.server.shapes.probs import TextLogprobs


class TextChoice(Answer):
    """One of the answers, or more of it."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason | None


class TextCompletion(WholeFields):
    """A completion."""

    object: Literal["text_completion"]
    choices: list[TextChoice]


class TextCompletionChunk(ChunkFields):
    """An event of a streamed completion; the stream ends with `data: [DONE]`."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
