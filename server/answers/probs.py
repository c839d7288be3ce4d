"""How likely tokens were."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import NotRequired

from dflash_local.server.answers.answer import Answer, about


class LikelyToken(Answer):
    """A token that stood to choose."""

    id: int
    token: Annotated[str, about("its text, as far as it is any by itself")]
    bytes: list[int]
    logprob: NotRequired[float]
    prob: NotRequired[Annotated[float, about("in place of `logprob`, with post_sampling_probs")]]


class TokenAnswer(LikelyToken):
    """A token of the answer."""

    top_logprobs: NotRequired[Annotated[list[LikelyToken], about("the likeliest at its place")]]
    top_probs: NotRequired[Annotated[list[LikelyToken], about("the same with post_sampling_probs")]]


class ChatLogprobs(Answer):
    """Of the tokens of a chat's answer, or of an event of it."""

    content: list[TokenAnswer]
    refusal: None


class TextLogprobs(Answer):
    """Of the tokens of a text; nothing is known of the first one of a prompt."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: Annotated[list[dict[str, float] | None], about("the likeliest, and the token itself")]
    text_offset: Annotated[list[int], about("at which character of the text each begins")]
