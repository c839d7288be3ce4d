"""What every generated answer tells about itself."""

from __future__ import annotations

from typing import Literal

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


class NodeAnswer(Answer):
    """A node of a verified tree."""

    t: str = Field(description="its token's text")
    p: int = Field(description="its parent's place in the tree; -1: it is the anchor")
    prob: float | None = Field(description="the drafter's, given the parent; null if it did not propose the token")
    value: float = Field(description="the chance that the walk gets here, as it was estimated")
    by: Literal["target", "draft", "lookup", "prediction"]


class PassAnswer(Answer):
    """A target pass: what it verified, and what the answer got of it."""

    number: int = Field(alias="pass", description="of this answer; 0: the prompt's last pass, which verifies nothing")
    choice: int
    nodes: int = Field(description="of the tree, the anchor counted; 1: plain decoding")
    depth: int = Field(description="of the tree")
    denoised: int = Field(description="length of the drafter's block; 0: there was none")
    accepted: int = Field(description="draft tokens that the target samples, too")
    reason: str = Field(description="why the controller chose so")
    draft_ms: float = Field(description="the drafter's pass before it")
    verify_ms: float
    plain_ms: float = Field(
        description="a pass for one token by the measured costs, all slots that write together; 0: unknown"
    )
    tokens: list[str] = Field(
        description="what the answer got: the accepted ones, then the target's own. A character of several tokens is "
        "whole in the last of them"
    )
    tree: list[NodeAnswer] = Field(description="parents before their children")
    path: list[int] = Field(description="places of the accepted nodes, the anchor first")


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
    of_pass: PassAnswer | None = Field(None, alias="pass", description="with return_drafts: the pass of this event")
    passes: list[PassAnswer] | None = Field(
        None, description="with return_drafts, not streamed: all passes after the prompt's"
    )
