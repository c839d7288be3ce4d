"""What every generated answer tells about itself."""

from __future__ import annotations

from pydantic import Field

from dflash_local.server.answers.answer import Answer


class PromptTokens(Answer):
    """Of the prompt's tokens."""

    cached_tokens: int = Field(description="taken from a slot's cache")


class CompletionTokens(Answer):
    """Of the answer's tokens."""

    reasoning_tokens: int | None = Field(None, description="of a chat's thoughts")
    accepted_prediction_tokens: int | None = Field(
        None, description="with a prediction: tokens of it that the answer has"
    )
    rejected_prediction_tokens: int | None = Field(None, description="those that it has not")


class Usage(Answer):
    """OpenAI's `usage`: each prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokens
    completion_tokens_details: CompletionTokens | None = Field(None, description="of chats, and with a prediction")


class ProgressAnswer(Answer):
    """How much of a prompt has been read."""

    total: int
    cache: int = Field(description="of the tokens that were read, those from the cache")
    processed: int
    time_ms: int


class TimingsAnswer(Answer):
    """llama-server's `timings`."""

    cache_n: int = Field(description="prompt tokens taken from the cache")
    prompt_n: int = Field(description="prompt tokens that were read")
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float = Field(description="from the first token to the last")
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int = Field(description="draft tokens that were verified")
    draft_n_accepted: int


class DraftingAnswer(Answer):
    """What drafting did."""

    acceptance_length: float | None = Field(description="AL; null if no pass followed the prompt's")
    passes_n: int = Field(description="target passes after the prompt's")
    plain_n: int = Field(description="those without a draft")
    nodes_mean: float | None = Field(description="nodes per pass, the anchor counted")
    depth_mean: float | None = Field(description="depth of the trees, over passes with a draft")
    denoised_mean: float | None = Field(description="block length, over drafter passes")
    lookup_n: int = Field(description="draft tokens that prompt lookup or a prediction alone proposed")
    lookup_n_accepted: int
    reason: str = Field(description="why the controller chose as it did in the last pass")
