"""Answers of embedding and reranking models. Vectors come as JSON from the process that computed them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from dflash_local.server.embeddings.process import Embeddings, Scores
from dflash_local.server.encoding import encode
from dflash_local.server.fields.embeddings import RerankRequest


def openai_embeddings(answer: Embeddings, model: str, *, base64: bool) -> Response:
    """OpenAI's list."""
    kind = b',"encoding_format":"base64"' if base64 else b""
    data = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%s%s}' % (index, part, kind)
        for index, part in enumerate(answer.parts)
    )
    head = {"model": model, "object": "list", "usage": _usage(answer.n_tokens)}
    return _json(_text(head)[:-1] + b',"data":[' + data + b"]}")


def native_embeddings(answer: Embeddings, *, pooled: bool) -> Response:
    """llama-server's own: a list of rows for each text, of one row if they were pooled."""
    form = b'{"index":%d,"embedding":[%s]}' if pooled else b'{"index":%d,"embedding":%s}'
    return _json(b"[" + b",".join(form % item for item in enumerate(answer.parts)) + b"]")


def ranking(answer: Scores, fields: RerankRequest, documents: list[str], model: str) -> Any:
    """Best first: Jina's object, or the bare list of text-embeddings-inference."""
    order = sorted(range(len(answer.scores)), key=lambda index: -answer.scores[index])
    results: list[dict[str, Any]] = []
    for index in order[: fields.top_n]:
        score, text = answer.scores[index], documents[index]
        if fields.is_tei:
            results.append({"index": index, "score": score} | ({"text": text} if fields.return_text else {}))
            continue
        results.append({"index": index, "relevance_score": score})
        if fields.return_documents:
            results[-1]["document"] = {"text": text}
    if fields.is_tei:
        return results
    return {"model": model, "object": "list", "usage": _usage(answer.n_tokens), "results": results}


def _usage(n_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": n_tokens, "total_tokens": n_tokens}


def _text(body: Any) -> bytes:
    return encode(body)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
