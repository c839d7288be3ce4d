"""What /metrics says of models for embeddings and scores."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_local.server.embeddings.process import EmbeddingProcess

_COUNTERS = {
    "dflash:embedding_requests_total": ("Requests for embeddings or scores that were answered", "n_requests"),
    "dflash:embedding_tokens_total": ("Tokens of their texts", "n_tokens"),
}


def embedding_metrics(processes: Sequence[EmbeddingProcess]) -> str:
    """In Prometheus' words; empty without such a model."""
    lines = []
    for name, (text, field) in _COUNTERS.items() if processes else ():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
        for process in processes:
            kind = "rerank" if process.facts.get("pooling") == "rank" else "embed"
            lines.append(f'{name}{{task="{kind}"}} {getattr(process, field)}')
    return "".join(line + "\n" for line in lines)
