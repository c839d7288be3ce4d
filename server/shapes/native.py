"""llama-server's own completion."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.probs import TokenAnswer
from dflash_local.server.shapes.timings import DraftingAnswer, Measured, ProgressAnswer, TimingsAnswer, Usage


class NativeChunk(Answer):
    """An event of a stream before the last."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[False]
    id_slot: int
    tokens_predicted: int
    tokens_evaluated: int
    completion_probabilities: NotRequired[Annotated[list[TokenAnswer], about("with n_probs")]]
    timings: NotRequired[Annotated[TimingsAnswer, about("with timings_per_token")]]
    dflash: NotRequired[Annotated[DraftingAnswer, about("beside `timings`")]]
    prompt_progress: NotRequired[Annotated[ProgressAnswer, about("with return_progress, before any text")]]


class NativeCompletion(Measured):
    """A completion. As the last event of a stream, its `content` and `tokens` are empty."""

    index: int
    content: str
    tokens: Annotated[list[int], about("if return_tokens asks for them")]
    id_slot: Annotated[int, about("where it was written; -1: nowhere")]
    stop: Literal[True]
    model: str
    tokens_predicted: int
    tokens_evaluated: Annotated[int, about("tokens of the prompt")]
    tokens_cached: Annotated[int, about("tokens that the slot holds now")]
    generation_settings: Annotated[dict[str, Any], about("what the request asked for, with all defaults")]
    prompt: Annotated[str, about("as the model's tokens write it")]
    has_new_line: bool
    truncated: Annotated[bool, about("the context was full")]
    stop_type: Literal["word", "eos", "limit"]
    stopping_word: str
    completion_probabilities: NotRequired[Annotated[list[TokenAnswer], about("with n_probs")]]


class NativeUsage(Answer):
    """The last event, if stream_options.include_usage asks for it."""

    stop: Literal[True]
    usage: Usage
    dflash: NotRequired[Annotated[DraftingAnswer, about("beside `timings`")]]


ChosenFields = Annotated[dict[str, Any], about("fields of a completion, if response_fields names them")]
NativeAnswer = NativeCompletion | ChosenFields | list[NativeCompletion | ChosenFields]  # of several prompts
NativeEvent = NativeChunk | NativeCompletion | NativeUsage | ChosenFields
