"""How likely tokens were."""

from __future__ import annotations

from pydantic import Field

from dflash_local.server.answers.answer import Answer


class LikelyToken(Answer):
    """A token that stood to choose."""

    id: int
    token: str = Field(description="its text, as far as it is any by itself")
    bytes: list[int]
    logprob: float | None = None
    prob: float | None = Field(None, description="in place of `logprob`, with post_sampling_probs")


class TokenAnswer(LikelyToken):
    """A token of the answer."""

    top_logprobs: list[LikelyToken] | None = Field(None, description="the likeliest at its place")
    top_probs: list[LikelyToken] | None = Field(None, description="the same with post_sampling_probs")


class ChatLogprobs(Answer):
    """Of the tokens of a chat's answer, or of an event of it."""

    content: list[TokenAnswer]
    refusal: None


class TextLogprobs(Answer):
    """Of the tokens of a text; nothing is known of the first one of a prompt."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] = Field(description="the likeliest, and the token itself")
    text_offset: list[int] = Field(description="at which character of the text each begins")
