"""Embeddings of texts and scores of documents."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about


class EmbeddingUsage(Answer):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class Embedding(Answer):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: Annotated[list[float] | str, about("numbers, or base64 of little-endian float32")]
    encoding_format: NotRequired[Literal["base64"]]


class EmbeddingList(Answer):
    """OpenAI's answer."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage


class NativeEmbedding(Answer):
    """The rows of one text: one if they are pooled, else one for each token."""

    index: int
    embedding: list[list[float]]


class RankedText(Answer):
    """A document."""

    text: str


class Rank(Answer):
    """How well one document answers the query."""

    index: int
    relevance_score: float
    document: NotRequired[RankedText]


class RankList(Answer):
    """The documents, best first."""

    object: Literal["list"]
    model: str
    results: list[Rank]
    usage: EmbeddingUsage


class TeiRank(Answer):
    """A document's rank in the terms of text-embeddings-inference."""

    index: int
    score: float
    text: NotRequired[str]
