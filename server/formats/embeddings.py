"""Answers of embedding and reranking models. Vectors come as JSON from the process that computed them."""

from __future__ import annotations

import math

from starlette.responses import Response

from dflash_local.server.embeddings.embedding_process import Embeddings, Scores
from dflash_local.server.encoding import encode
from dflash_local.server.fields.embeddings import RerankRequest
from dflash_local.server.shapes.embeddings import EmbeddingUsage, Rank, RankList, TeiRank


def openai_embeddings(answer: Embeddings, model: str, *, base64: bool) -> Response:
    kind = b',"encoding_format":"base64"' if base64 else b""
    data = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%s%s}' % (index, part, kind)
        for index, part in enumerate(answer.parts)
    )
    head = {"model": model, "object": "list", "usage": _usage(answer.n_tokens)}
    return _json(encode(head)[:-1] + b',"data":[' + data + b"]}")


def native_embeddings(answer: Embeddings, *, pooled: bool) -> Response:
    """llama-server's own: a list of rows for each text, of one row if they were pooled."""
    form = b'{"index":%d,"embedding":[%s]}' if pooled else b'{"index":%d,"embedding":%s}'
    return _json(b"[" + b",".join(form % item for item in enumerate(answer.parts)) + b"]")


def ranking(answer: Scores, fields: RerankRequest, documents: list[str], model: str) -> RankList | list[TeiRank]:
    """Best first: Jina's object, or the bare list of text-embeddings-inference."""
    scores = answer.scores if fields.raw_scores is not False else [_logistic(score) for score in answer.scores]
    order = sorted(range(len(scores)), key=lambda index: -answer.scores[index])
    best = order[: fields.top_n]
    if fields.is_tei:
        ranks = [TeiRank(index=index, score=scores[index]) for index in best]
        for rank in ranks if fields.return_text else ():
            rank["text"] = documents[rank["index"]]
        return ranks
    results = [Rank(index=index, relevance_score=scores[index]) for index in best]
    for result in results if fields.return_documents else ():
        result["document"] = {"text": documents[result["index"]]}
    return {"model": model, "object": "list", "usage": _usage(answer.n_tokens), "results": results}


def _logistic(score: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * score))  # which overflows for no score


def _usage(n_tokens: int) -> EmbeddingUsage:
    return {"prompt_tokens": n_tokens, "total_tokens": n_tokens}


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
