"""What a client asks about probabilities: OpenAI's `logprobs`, `top_logprobs` and `echo`, llama-server's `n_probs` and
`post_sampling_probs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dflash_local.errors import RequestError
from dflash_local.keywords import SubmitKeywords
from dflash_local.server.fields.fields import Fields, Policy

MAX_TOP_LOGPROBS = 20  # of a chat, as OpenAI's
MAX_PROBS = 100  # of everything else: an answer has them for each of its tokens


@dataclass(frozen=True, slots=True)
class Probs:
    """What is asked for. `n_top`: likeliest tokens to list beside each token; None: no probabilities at all."""

    n_top: int | None = None
    post_sampling: bool = False
    echo: bool = False

    @property
    def options(self) -> SubmitKeywords:
        if self.n_top is None:
            return {}
        return {
            "n_probs": max(self.n_top, 1),
            "post_sampling_probs": self.post_sampling,
            "probs_from": 1 if self.echo else 0,
        }


class ProbFields(Fields):
    """llama-server's names, which all formats accept."""

    n_probs: int | None = Field(
        None, ge=0, le=MAX_PROBS, description="return each token's log-probability, and this many of the likeliest"
    )
    post_sampling_probs: bool | None = Field(
        None, description="return probabilities after the samplers, not the model's own log-probabilities"
    )

    def probs(self) -> Probs:
        """What the fields ask for together.

        Raises:
            RequestError: a field contradicts another.
        """
        return Probs(self.n_probs or None, bool(self.post_sampling_probs))


class ChatProbFields(ProbFields):
    """The fields of chats."""

    logprobs: bool | None = Field(None, description="return each token's log-probability")
    top_logprobs: int | None = Field(
        None, ge=0, le=MAX_TOP_LOGPROBS, description="return this many of the likeliest, too; needs logprobs"
    )

    def probs(self) -> Probs:
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs: true", param="top_logprobs")
        n_top = self.n_probs or None
        if self.logprobs:
            n_top = (self.n_probs or 0) if self.top_logprobs is None else self.top_logprobs
        return Probs(n_top, bool(self.post_sampling_probs))


class TextProbFields(ProbFields):
    """The fields of OpenAI's completions."""

    logprobs: Annotated[int, Field(ge=0, le=MAX_PROBS)] | Literal[False] | None = Field(
        None, description="return each token's log-probability, and this many of the likeliest"
    )
    echo: bool | None = Field(None, description="the answer begins with the prompt, log-probabilities included")

    POLICY: ClassVar = Policy(
        must={"logprobs": f"an integer from 0 to {MAX_PROBS}"},
        refused={"top_logprobs": "it belongs to chats: use logprobs: N"},
    )

    def probs(self) -> Probs:
        n_top = self.n_probs or None if self.logprobs is None or self.logprobs is False else self.logprobs
        if self.post_sampling_probs and n_top is not None:
            raise RequestError(
                "post_sampling_probs: OpenAI's completions have no place for them; use /completion or a chat",
                param="post_sampling_probs",
            )
        return Probs(n_top, echo=bool(self.echo))


class NativeProbFields(ProbFields):
    """The fields of llama-server's completions."""

    POLICY: ClassVar = Policy(
        names={"n_probs": ("n_probs", "logprobs")},
        nothing={"n_probs": (False,)},
        refused={
            "top_logprobs": "it belongs to chats: use n_probs: N",
            "echo": "the prompt is repeated by /v1/completions only",
        },
    )
