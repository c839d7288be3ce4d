"""Passes of the target: what each verified."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from dflash_local.server.shapes.answer import Answer, about

Proposer = Literal["target", "draft", "mtp", "lookup", "prediction"]


class NodeAnswer(Answer):
    """A node of a verified tree."""

    t: Annotated[str, about("its token's text")]
    p: Annotated[int, about("its parent's place in the tree; -1: it is the anchor")]
    prob: Annotated[float | None, about("the drafter's, given the parent; null if it did not propose the token")]
    value: Annotated[float, about("the estimated probability that the walk gets here")]
    by: Proposer


# A class cannot have a field named `pass`.
_Number = TypedDict(
    "_Number", {"pass": Annotated[int, about("of this answer; 0: the prompt's last pass, which verifies nothing")]}
)


class PassAnswer(Answer, _Number):
    """A target pass: what it verified, and what the answer got from it."""

    choice: int
    nodes: Annotated[int, about("of the tree, the anchor counted; 1: plain decoding")]
    depth: Annotated[int, about("of the tree")]
    denoised: Annotated[int, about("length of the drafter's block; 0: there was none")]
    accepted: Annotated[int, about("draft tokens that the target sampled, too")]
    reason: Annotated[str, about("why the controller chose so")]
    draft_ms: Annotated[float, about("the drafter's pass before it")]
    verify_ms: float
    plain_ms: Annotated[float, about("expected time of a pass for one token of each slot that writes; 0: unknown")]
    tokens: Annotated[
        list[str],
        about(
            "what the answer got: the accepted ones, then the target's own. A character of several tokens is "
            "whole in the last of them"
        ),
    ]
    tree: Annotated[list[NodeAnswer], about("parents before their children")]
    path: Annotated[list[int], about("places of the accepted nodes, the anchor first")]
