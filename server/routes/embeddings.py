"""Embeddings of texts and scores of documents: of OpenAI, Jina, text-embeddings-inference and llama-server."""

from __future__ import annotations

from operator import attrgetter

from starlette.requests import Request
from starlette.responses import Response

from dflash_local.errors import RequestError
from dflash_local.server.connected import while_connected
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.embeddings.embedding_facts import EmbeddingFacts
from dflash_local.server.embeddings.embedding_process import Embeddings
from dflash_local.server.encoding import JSON
from dflash_local.server.fields.embeddings import (
    EmbeddingFields,
    EmbeddingRequest,
    NativeEmbeddingRequest,
    RerankRequest,
)
from dflash_local.server.formats.embeddings import native_embeddings, openai_embeddings, ranking
from dflash_local.server.routes.endpoint import add_endpoint
from dflash_local.server.service import Service
from dflash_local.server.shapes.embeddings import EmbeddingList, NativeEmbedding, RankList, TeiRank

POOLING_HINT = "start the server with --pooling mean, cls or last, whichever the model was trained with"


def add_routes(app: DocumentedApp, service: Service) -> None:
    """Embeddings, and ranks of documents."""

    async def openai_handler(request: Request, body: EmbeddingRequest) -> Response:
        """Embeddings of texts, in OpenAI's format."""
        facts = service.embedder.facts
        check_dimensions(facts, body.dimensions)
        if body.input is None:  # "content" is llama-server's
            if body.encoding_format == "base64":
                raise RequestError(
                    "encoding_format: content is answered with numbers", param="encoding_format", hint="use input"
                )
            return await _native(request, body, service)
        if facts["pooling"] == "none":
            raise RequestError(
                "Pooling type 'none' is not OAI compatible. Please use a different pooling type",
                param="input",
                hint=POOLING_HINT,
            )
        base64 = body.encoding_format == "base64"
        answer = await _embed(request, body, service, base64=base64)
        return openai_embeddings(answer, body.model or service.embedder.options.name, base64=base64)

    async def native_handler(request: Request, body: NativeEmbeddingRequest) -> Response:
        """Embeddings of texts, in llama-server's own format."""
        return await _native(request, body, service)

    async def rerank_handler(request: Request, body: RerankRequest) -> Response:
        """Scores of documents for a query, best first."""
        reranker = service.reranker
        query, documents = body.pairs()
        body.ignore(body.idle(), strict=service.settings.strict_fields)
        answer = await while_connected(request.receive, reranker.rerank(query, documents))
        return JSON(ranking(answer, body, documents, body.model or reranker.options.name))

    embedder, reranker = attrgetter("embedder"), attrgetter("reranker")
    add_endpoint(
        app,
        ("/v1/embeddings",),
        openai_handler,
        answer=EmbeddingList | list[NativeEmbedding],
        needs=embedder,
        wakes=False,
    )
    add_endpoint(
        app, ("/embeddings", "/embedding"), native_handler, answer=list[NativeEmbedding], needs=embedder, wakes=False
    )
    paths = ("/v1/rerank", "/v1/reranking", "/rerank", "/reranking")
    add_endpoint(app, paths, rerank_handler, answer=RankList | list[TeiRank], needs=reranker, wakes=False)


def check_dimensions(facts: EmbeddingFacts, dimensions: int | None) -> None:
    """Raise RequestError unless vectors have the wanted length."""
    if dimensions not in (None, facts["n_embd"]):
        raise RequestError(
            f"dimensions: the model's vectors have {facts['n_embd']}, not {dimensions}", param="dimensions"
        )


async def _native(request: Request, body: EmbeddingFields, service: Service) -> Response:
    answer = await _embed(request, body, service, base64=False)
    return native_embeddings(answer, pooled=service.embedder.facts["pooling"] != "none")


async def _embed(request: Request, body: EmbeddingFields, service: Service, *, base64: bool) -> Embeddings:
    texts, param = body.texts()
    if param == "input" and body.content not in (None, texts):
        body.ignore(["content"], strict=service.settings.strict_fields)
    normalize = service.settings.embd_normalize if body.embd_normalize is None else body.embd_normalize
    work = service.embedder.embed(texts, normalize=normalize, base64=base64, param=param)
    return await while_connected(request.receive, work)
