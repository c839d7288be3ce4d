"""The bodies of requests for embeddings, and for scores of documents."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from dflash_local.errors import RequestError
from dflash_local.server.fields.fields import Fields, Policy, Refused

_Texts = str | list[Any] | dict[str, Any]
_TEXTS = "a text, token ids, texts and ids in turn, content parts, or a list of such"
_ALONE = "users are not distinguished"
_CUT = Refused("texts are never cut: give them in pieces", unless=(False, 0, -1, "NONE", "none"))


class EmbeddingFields(Fields):
    """What both formats read. The texts are checked by the process that tokenizes them."""

    input: _Texts | None = Field(None, description=_TEXTS)
    content: _Texts | None = Field(None, description="the same; the answer then has llama-server's shape")
    model: str | None = Field(None, description="any name: there is one model for embeddings")
    embd_normalize: int | None = Field(
        None,
        ge=-1,
        le=64,
        description="-1: none, 0: the largest is 32760, 1: taxicab, 2: Euclid, N: p-norm (default: the server's)",
    )

    POLICY: ClassVar = Policy(
        must={"input": _TEXTS, "content": _TEXTS},
        harmless={"user": _ALONE, "keep_alive": "the model stays loaded", "priority": "requests take turns"},
        refused={
            "truncate": _CUT,
            "truncate_prompt_tokens": _CUT,
            "prompt_name": "there are no named prompts: put the instruction before the text",
            "input_type": "there are no named prompts: put the instruction before the text",
            "embedding_types": "use encoding_format",
        },
    )

    def texts(self) -> tuple[Any, str]:
        """The texts, and the field that they came in."""
        for param in ("input", "content"):
            if (value := getattr(self, param)) is not None:
                return value, param
        raise RequestError(f'"input" or "content" must be provided: {_TEXTS}', param="input")


class EmbeddingRequest(EmbeddingFields):
    """Embeddings in OpenAI's format."""

    encoding_format: Literal["float", "base64"] | None = Field(None, description="how vectors are written")
    dimensions: int | None = Field(None, description="only the model's own number is accepted")


class NativeEmbeddingRequest(EmbeddingFields):
    """Embeddings in llama-server's own format."""

    POLICY: ClassVar = Policy(
        refused={
            "encoding_format": Refused("use /v1/embeddings", unless=("float",)),
            "dimensions": "use /v1/embeddings, which accepts the model's own number",
        }
    )


class RerankRequest(Fields):
    """A query and documents, in the terms of Jina and Cohere, or (`texts`) of text-embeddings-inference."""

    query: str | None = Field(None, description="what the documents should answer")
    documents: Annotated[Any, WithJsonSchema({"type": "array", "minItems": 1})] = Field(
        None, description='texts, or objects with a "text"'
    )
    texts: Annotated[Any, WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1})] = Field(
        None, description="the same; the answer is then a bare list with `score`"
    )
    model: str | None = Field(None, description="any name: there is one model for scores")
    top_n: int | None = Field(None, ge=1, description="how many of the best to return (default: all)")
    return_text: bool | None = Field(None, description="return each text with its score, if `texts` were given")
    return_documents: bool | None = Field(None, description="return each document with its score")
    raw_scores: bool | None = Field(None, description="false: scores between 0 and 1, by the logistic function")

    POLICY: ClassVar = Policy(
        harmless={"user": _ALONE, "priority": "requests take turns"},
        refused={
            "truncate": _CUT,
            "truncate_prompt_tokens": _CUT,
            "max_tokens_per_doc": "texts are never cut: give them in pieces",
            "max_chunks_per_doc": "texts are never cut: give them in pieces",
        },
    )

    @property
    def is_tei(self) -> bool:
        """Whether the body is in the terms of text-embeddings-inference."""
        return self.documents is None and self.texts is not None

    def idle(self) -> list[str]:
        """Fields that were sent and change nothing."""
        of_tei, others = ("texts", "return_text"), ("return_documents",)
        names = [name for name in (others if self.is_tei else of_tei) if getattr(self, name)]
        given = (self.texts if self.is_tei else self.documents) or []
        keys = {key for item in given if isinstance(item, dict) for key in item if key != "text"}
        return names + [f"{'texts' if self.is_tei else 'documents'}[].{key}" for key in sorted(keys)]

    def pairs(self) -> tuple[str, list[str]]:
        """The query and the documents.

        Raises:
            RequestError: they are missing or malformed.
        """
        if self.query is None:
            raise RequestError('"query" must be provided', param="query")
        param = "texts" if self.is_tei else "documents"
        given = getattr(self, param)
        documents = [_document(item) for item in given] if isinstance(given, list) else []
        texts = [text for text in documents if text is not None]
        if not texts or len(texts) < len(documents):
            raise RequestError(f'"{param}" must be a non-empty string array', param=param)
        return self.query, texts


def _document(item: Any) -> str | None:
    text = item.get("text") if isinstance(item, dict) else item
    return text if isinstance(text, str) else None
