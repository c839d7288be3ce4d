"""What every generated answer says of itself."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import NotRequired, TypedDict

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.passes import PassAnswer


class PromptTokens(Answer):
    """Details of the prompt's tokens."""

    cached_tokens: Annotated[int, about("taken from a slot's cache")]
    image_tokens: NotRequired[Annotated[int, about("rows of images, if there are any")]]
    audio_tokens: NotRequired[Annotated[int, about("rows of audio, if there are any")]]


class CompletionTokens(Answer):
    """Details of the answer's tokens."""

    reasoning_tokens: NotRequired[Annotated[int, about("of a chat's thoughts")]]
    accepted_prediction_tokens: NotRequired[Annotated[int, about("tokens of the prediction that the answer has")]]
    rejected_prediction_tokens: NotRequired[Annotated[int, about("those that it does not have")]]


class Usage(Answer):
    """OpenAI's `usage`: each prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokens
    completion_tokens_details: NotRequired[Annotated[CompletionTokens, about("of chats, and with a prediction")]]


class ProgressAnswer(Answer):
    """How much of a prompt has been read."""

    total: int
    cache: Annotated[int, about("tokens of `processed` that came from the cache")]
    processed: int
    time_ms: int


class TimingsAnswer(Answer):
    """llama-server's `timings`."""

    cache_n: Annotated[int, about("prompt tokens taken from the cache")]
    prompt_n: Annotated[int, about("prompt tokens that were read")]
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: Annotated[float, about("from the first token to the last")]
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: Annotated[int, about("draft tokens that were verified")]
    draft_n_accepted: int


# A class cannot have a field named `pass`.
_Pass = TypedDict(
    "_Pass", {"pass": NotRequired[Annotated[PassAnswer, about("with return_drafts: that of this event")]]}
)


class DraftingAnswer(Answer, _Pass):
    """What drafting did."""

    acceptance_length: Annotated[float | None, about("AL; null if no pass followed the prompt's")]
    passes_n: Annotated[int, about("target passes after the prompt's")]
    plain_n: Annotated[int, about("those without a draft")]
    nodes_mean: Annotated[float | None, about("nodes per pass, the anchor counted")]
    depth_mean: Annotated[float | None, about("depth of the trees, over passes with a draft")]
    denoised_mean: Annotated[float | None, about("block length, over drafter passes")]
    mtp_n: Annotated[int, about("draft tokens that next-token (MTP) layers proposed")]
    mtp_n_accepted: int
    lookup_n: Annotated[int, about("draft tokens that were only quoted, from whatever source")]
    lookup_n_accepted: int
    corpus_n: Annotated[int, about("those of them from the files of --lookup-corpus")]
    corpus_n_accepted: int
    answers_n: Annotated[int, about("those from earlier answers, with --lookup-answers")]
    answers_n_accepted: int
    reason: Annotated[str, about("why the controller chose as it did in the last pass")]
    passes: NotRequired[
        Annotated[list[PassAnswer], about("with return_drafts, not streamed: all passes after the prompt's")]
    ]


class Measured(Answer):
    """Both, as every finished answer has them."""

    timings: TimingsAnswer
    dflash: DraftingAnswer
