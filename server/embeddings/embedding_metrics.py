"""The part of /metrics about models for embeddings and scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dflash_local.server.prometheus import head

if TYPE_CHECKING:
    from dflash_local.server.embeddings.embedding_process import EmbeddingProcess

_COUNTERS = {
    "embedding_requests_total": ("Requests for embeddings or scores that were answered", "n_requests"),
    "embedding_tokens_total": ("Tokens of their texts", "n_tokens"),
    "embedding_passes_total": ("Passes of the models that computed them", "n_passes"),
}


def embedding_metrics(processes: Sequence[EmbeddingProcess]) -> str:
    """Prometheus text under names of our own, for a server that also has an engine; empty without such a model."""
    lines: list[str] = []
    for name, (text, field) in _COUNTERS.items() if processes else ():
        lines += head(f"dflash:{name}", "counter", text)
        for process in processes:
            task = "rerank" if process.facts.get("pooling") == "rank" else "embed"
            lines.append(f'dflash:{name}{{task="{task}"}} {getattr(process, field)}')
    return "".join(line + "\n" for line in lines)


def metrics_without_engine(processes: Sequence[EmbeddingProcess]) -> str:
    """All of /metrics without an engine: llama-server's names for generation, since it has no others for embeddings."""
    totals = {
        ("prompt_tokens_total", "counter"): sum(process.n_tokens for process in processes),
        ("n_decode_total", "counter"): sum(process.n_passes for process in processes),
        ("tokens_predicted_total", "counter"): 0,
        ("requests_processing", "gauge"): sum(process.n_waiting for process in processes),
        ("requests_deferred", "gauge"): 0,
    }

    def lines() -> Iterator[str]:
        for (name, kind), value in totals.items():
            yield from head(f"llamacpp:{name}", kind, "As in llama-server, of embeddings and scores")
            yield f"llamacpp:{name} {value}"

    return "".join(line + "\n" for line in lines()) + embedding_metrics(processes)
