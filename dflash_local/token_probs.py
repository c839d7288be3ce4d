"""How likely tokens were, and what else was likely: what a request with `n_probs` gets beside its tokens."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(slots=True)
class TokenProb:
    """A token and the likeliest tokens at its place.

    Attributes:
        value: the natural logarithm of the token's probability, by the model's raw logits; with `post_sampling_probs`
            the probability with which the samplers left it to be drawn, 0 if they had dropped it.
        top_tokens, top_values: the likeliest, in falling order; equal ones by their id. After sampling only those
            which could be drawn.
    """

    token: int
    value: float
    top_tokens: array[int]
    top_values: array[float]

    @property
    def top(self) -> list[tuple[int, float]]:
        """The likeliest tokens with their values."""
        return list(zip(self.top_tokens, self.top_values, strict=True))
