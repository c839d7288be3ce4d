"""How likely tokens were."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about


class LikelyToken(Answer):
    """A candidate."""

    id: int
    token: Annotated[str, about("its text, as far as it has one by itself")]
    bytes: list[int]
    logprob: NotRequired[float]
    prob: NotRequired[Annotated[float, about("in place of `logprob`, with post_sampling_probs")]]


class TokenAnswer(LikelyToken):
    """A token of the answer."""

    top_logprobs: NotRequired[Annotated[list[LikelyToken], about("the likeliest at its place")]]
    top_probs: NotRequired[Annotated[list[LikelyToken], about("the same with post_sampling_probs")]]


class ChatLogprobs(Answer):
    """The tokens of a chat's answer, or of one of its events."""

    content: list[TokenAnswer]
    refusal: None


class TextLogprobs(Answer):
    """The tokens of a text; a prompt's first one has no probability."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: Annotated[list[dict[str, float] | None], about("the likeliest, and the token itself")]
    text_offset: Annotated[list[int], about("the character of the text at which each begins")]
