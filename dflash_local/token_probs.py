"""Probabilities of tokens and of their likeliest alternatives, for requests with `n_probs`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(slots=True)
class TokenProb:
    """A token and the likeliest tokens at its place.

    Attributes:
        value: the natural logarithm of the token's probability, by the model's raw logits; with `post_sampling_probs`
            its probability after the samplers, 0 if they dropped it.
        top_tokens, top_values: the likeliest, in descending order, ties by id. With `post_sampling_probs` only those
            that the samplers kept.
    """

    token: int
    value: float
    top_tokens: array[int]
    top_values: array[float]

    @property
    def top(self) -> list[tuple[int, float]]:
        return list(zip(self.top_tokens, self.top_values, strict=True))
