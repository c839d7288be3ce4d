"""Flags of `serve` for embedding and reranking models, and the settings they give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.flag import flag
from dflash_local.cli.flags.logs import LogFlags
from dflash_local.cli.flags.model_flags import ModelFlags
from dflash_local.cli.flags.named_models import local_target
from dflash_local.cli.flags.values import one_of
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.server.embeddings.options import ModelOptions

_POOLINGS = ("none", "mean", "cls", "last", "rank")


class EmbeddingFlags(
    ModelFlags, LogFlags, title="embeddings", text="a second model beside the one that writes, or -m alone"
):
    """Models for embeddings and scores."""

    embedding_model: str | None = flag(
        "--embedding-model", "model for /v1/embeddings: a file, or USER/NAME[:QUANT] from the Hub", metavar="GGUF"
    )
    rerank_model: str | None = flag(
        "--rerank-model", "model for /v1/rerank: a file, or USER/NAME[:QUANT] from the Hub", metavar="GGUF"
    )
    embedding: bool = flag(
        "--embedding --embeddings", "-m is for /v1/embeddings, and writes no text", env="LLAMA_ARG_EMBEDDINGS"
    )
    rerank: bool = flag("--rerank --reranking", "-m is for /v1/rerank, and writes no text", env="LLAMA_ARG_RERANKING")
    pooling: str | None = flag(
        "--pooling",
        "how a text's tokens become one vector (default: as the embedding model says)",
        env="LLAMA_ARG_POOLING",
        type=one_of(*_POOLINGS),
        metavar="|".join(_POOLINGS),
    )
    embd_normalize: int = flag(
        "--embd-normalize", "-1 none, 0 largest is 32760, 1 taxicab, 2 Euclid, N p-norm (default: 2)", default=2
    )

    @property
    def embeds(self) -> bool:
        """Whether -m is for embeddings; `--pooling rank` makes them scores, as in llama-server."""
        return self.embedding and self.pooling != "rank"

    @property
    def reranks(self) -> bool:
        """Whether -m is for scores."""
        return self.rerank or (self.embedding and self.pooling == "rank")

    @property
    def writes_no_text(self) -> bool:
        """Whether no engine is needed: the target is for embeddings or scores, or only a second model is named."""
        has_target = bool(self.model or self.hf_repo)
        return self.embeds or self.reranks or (bool(self.embedding_model or self.rerank_model) and not has_target)

    @property
    def vector_pooling(self) -> str | None:
        """The pooling of an embedding model; one for scores has its own."""
        return None if self.pooling == "rank" else self.pooling


def check_embedding_flags(args: EmbeddingFlags) -> None:
    """Refuse flags that would be ignored.

    Raises:
        RequestError: two models for one purpose, a drafter or a pooling without the model that it is for.
    """
    for flag_name, is_target, param, other in (
        ("--embedding", args.embeds, "--embedding-model", args.embedding_model),
        ("--reranking", args.reranks, "--rerank-model", args.rerank_model),
    ):
        if is_target and other:
            raise RequestError(f"{flag_name} and {param} both name a model", param=param, hint="give one of them")
    if args.writes_no_text and args.drafter:
        raise RequestError("a drafter is for a model that writes text", param="-md", hint="leave -md out")
    if args.vector_pooling and not (args.embedding or args.embedding_model):
        raise RequestError(
            "--pooling is for embeddings", param="--pooling", hint="give --embedding or --embedding-model, too"
        )
    if not -1 <= args.embd_normalize <= 64:
        raise RequestError("--embd-normalize must be from -1 to 64", param="--embd-normalize")


def embedding_settings(args: EmbeddingFlags, target: str, name: str) -> dict[str, Any]:
    """Fields of the server's Settings; `target` is the file of -m, and `name` its name. Downloads models given by name.

    Raises:
        HubError: a model cannot be fetched.
        ModelError: a file is damaged, or not an embedding model.
    """

    def options(is_target: bool, other: str | None, pooling: str | None) -> ModelOptions | None:
        if is_target:
            return _options(args, target, name, pooling, args.n_ctx)
        if other is None:
            return None
        return _options(args, str(local_target(other, args)), Path(other).name, pooling, 0)

    return {
        "embedding": options(args.embeds, args.embedding_model, args.vector_pooling),
        "rerank": options(args.reranks, args.rerank_model, "rank"),
        "embd_normalize": args.embd_normalize,
    }


def _options(args: EmbeddingFlags, path: str, name: str, pooling: str | None, n_ctx: int) -> ModelOptions:
    from dflash_local.machine.hardware import default_threads
    from dflash_local.native import check_embedding_gguf
    from dflash_local.server.embeddings.options import ModelOptions

    check_embedding_gguf(path)
    return ModelOptions(
        path=path,
        name=name,
        n_ctx=n_ctx,
        pooling=pooling,
        n_threads=args.n_threads_batch or args.n_threads or default_threads(),
        n_gpu_layers=args.n_gpu_layers,
        mmap=args.maps_files,
        verbose=args.verbosity > 3,
    )
