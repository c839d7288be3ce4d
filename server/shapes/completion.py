"""What OpenAI's chat and text completions share."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import NotRequired, TypedDict

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.native import NativeCompletion
from dflash_local.server.shapes.timings import DraftingAnswer, Measured, ProgressAnswer, TimingsAnswer, Usage

# A class would mangle this name.
Verbose = TypedDict(
    "Verbose",
    {"__verbose": NotRequired[Annotated[NativeCompletion, about("with verbose; of a stream, in its last event")]]},
)


class Head(Answer):
    """What every body begins with."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class WholeFields(Head, Measured, Verbose):
    """Fields of an answer that is not streamed."""

    usage: Usage


class ChunkFields(Head, Verbose):
    """Fields of a stream's event."""

    usage: NotRequired[Annotated[Usage, about("of the last event, if stream_options.include_usage asks for it")]]
    timings: NotRequired[Annotated[TimingsAnswer, about("of the last event, or of all with timings_per_token")]]
    dflash: NotRequired[Annotated[DraftingAnswer, about("beside `timings`")]]
    prompt_progress: NotRequired[Annotated[ProgressAnswer, about("with return_progress, before any text")]]
