"""EmbeddingFacts: what a worker tells of its model."""

from __future__ import annotations

from typing import TypedDict


class EmbeddingFacts(TypedDict, total=False):
    """Empty until the model has been loaded; then it has all of them. `pooling` is one of POOLINGS, `has_head` is about
    scores, `size` in bytes."""

    description: str
    ftype: str
    vocab_type: int
    pooling: str
    has_head: bool
    n_ctx: int
    n_ctx_train: int
    n_embd: int
    n_vocab: int
    n_params: int
    size: int
