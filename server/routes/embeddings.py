"""Embeddings of texts and scores of documents: of OpenAI, Jina, text-embeddings-inference and llama-server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from starlette.responses import Response

from dflash_local.errors import RequestError
from dflash_local.server.errors import JSON, HTTPError
from dflash_local.server.fields.body import read_json
from dflash_local.server.fields.embeddings import check_dimensions, parse_embedding, parse_rerank
from dflash_local.server.formats.embeddings import native_embeddings, openai_embeddings, ranking
from dflash_local.server.service import Service

T = TypeVar("T")


def add_routes(app: FastAPI, service: Service) -> None:
    """Embeddings, and ranks of documents."""
    settings = service.settings

    def embeddings(*, openai: bool) -> Callable[[Request], Any]:
        async def handler(request: Request) -> Response:
            embedder = service.embedder
            body = await read_json(request, settings.max_body)
            fields = parse_embedding(body, normalize=settings.embd_normalize, openai=openai)
            check_dimensions(body, embedder.facts["n_embd"])
            is_openai = openai and fields.param == "input"
            pooled = embedder.facts["pooling"] != "none"
            if is_openai and not pooled:
                raise RequestError(
                    "Pooling type 'none' is not OAI compatible. Please use a different pooling type",
                    param="input",
                    hint="start the server with --pooling mean, cls or last, whichever the model was trained with",
                )
            work = embedder.embed(
                fields.texts, normalize=fields.normalize, base64=is_openai and fields.base64, param=fields.param
            )
            answer = await _while_connected(request, work)
            if is_openai:
                return openai_embeddings(answer, fields.model or embedder.options.name, base64=fields.base64)
            return native_embeddings(answer, pooled=pooled)

        return handler

    async def rerank(request: Request) -> Response:
        reranker = service.reranker
        fields = parse_rerank(await read_json(request, settings.max_body))
        answer = await _while_connected(request, reranker.rerank(fields.query, fields.documents))
        return JSON(ranking(answer, fields, fields.model or reranker.options.name))

    app.add_api_route("/v1/embeddings", embeddings(openai=True), methods=["POST"])
    for path in ("/embeddings", "/embedding"):
        app.add_api_route(path, embeddings(openai=False), methods=["POST"])
    for path in ("/v1/rerank", "/v1/reranking", "/rerank", "/reranking"):
        app.add_api_route(path, rerank, methods=["POST"])


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is given up when the client goes away."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watcher = asyncio.create_task(work), asyncio.create_task(watch())
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HTTPError(400, "the client left")
        return await task
    finally:
        task.cancel()
        watcher.cancel()
