"""Requests for embeddings and for scores of documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_local.errors import RequestError
from dflash_local.server.fields.request import _take as take

MAX_NORM = 64


@dataclass(frozen=True, slots=True)
class EmbeddingFields:
    """What is asked of an embedding model; the worker reads `texts`."""

    model: str | None
    texts: Any
    param: str  # where the texts stood
    base64: bool
    normalize: int


@dataclass(frozen=True, slots=True)
class RerankFields:
    """A query, and the documents that are to be scored for it."""

    model: str | None
    query: str
    documents: list[str]
    top_n: int
    is_tei: bool  # asked in the words of text-embeddings-inference
    return_text: bool


def parse_embedding(body: Mapping[str, Any], *, normalize: int, openai: bool) -> EmbeddingFields:
    """Check everything but the texts.

    Args:
        normalize: where the body does not say.
        openai: OpenAI's endpoint, whose answer may be base64.
    """
    param = "input" if body.get("input") is not None else "content"
    if body.get(param) is None:
        raise RequestError("input (or content) is missing: give a text, a list of texts, or token ids", param="input")
    encoding = take(body, "encoding_format", str, "float")
    if encoding not in ("float", "base64"):
        raise RequestError(f"encoding_format must be float or base64, got {encoding!r:.40}", param="encoding_format")
    if encoding == "base64" and not openai:
        raise RequestError("encoding_format: base64 is for /v1/embeddings with input", param="encoding_format")
    norm = take(body, "embd_normalize", int, normalize)
    if not -1 <= norm <= MAX_NORM:
        raise RequestError(f"embd_normalize must be from -1 to {MAX_NORM}, got {norm}", param="embd_normalize")
    return EmbeddingFields(take(body, "model", str, None), body[param], param, encoding == "base64", norm)


def check_dimensions(body: Mapping[str, Any], n_embd: int) -> None:
    """Raise RequestError for vectors shorter than the model's: only some models' first numbers mean anything alone."""
    dimensions = take(body, "dimensions", int, n_embd)
    if dimensions != n_embd:
        raise RequestError(f"dimensions: the model's vectors have {n_embd}, not {dimensions}", param="dimensions")


def parse_rerank(body: Mapping[str, Any]) -> RerankFields:
    """In the words of Jina and Cohere (documents), or of text-embeddings-inference (texts)."""
    query = take(body, "query", str, None)
    if query is None:
        raise RequestError('"query" must be provided', param="query")
    is_tei = body.get("documents") is None and "texts" in body
    param = "texts" if is_tei else "documents"
    documents = [_document(item) for item in _list(body.get(param))]
    if not documents or None in documents:
        raise RequestError(f'"{param}" must be a non-empty string array', param=param)
    top_n = take(body, "top_n", int, len(documents))
    if top_n < 1:
        raise RequestError(f"top_n must be at least 1, got {top_n}", param="top_n")
    return_text = take(body, "return_text" if is_tei else "return_documents", bool, False)
    texts = [text for text in documents if text is not None]
    return RerankFields(take(body, "model", str, None), query, texts, top_n, is_tei, return_text)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _document(item: Any) -> str | None:
    text = item.get("text") if isinstance(item, dict) else item
    return text if isinstance(text, str) else None
