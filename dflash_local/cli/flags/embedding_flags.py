"""Flags of `serve` for embedding and reranking models, and the settings they give."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.flag import add_flag
from dflash_local.cli.flags.model_flags import local_target
from dflash_local.cli.flags.values import one_of
from dflash_local.errors import RequestError

if TYPE_CHECKING:
    from dflash_local.server.embeddings.options import ModelOptions

_POOLINGS = ("none", "mean", "cls", "last", "rank")


def add_embedding_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("embeddings", "a second model beside the one that writes, or -m alone")
    group.add_argument(
        "--embedding-model", metavar="GGUF", help="model for /v1/embeddings: a file, or USER/NAME[:QUANT] from the Hub"
    )
    group.add_argument(
        "--rerank-model", metavar="GGUF", help="model for /v1/rerank: a file, or USER/NAME[:QUANT] from the Hub"
    )
    add_flag(
        group,
        "--embedding",
        "--embeddings",
        dest="embedding",
        env="LLAMA_ARG_EMBEDDINGS",
        action="store_true",
        help="-m is for /v1/embeddings, and writes no text",
    )
    add_flag(
        group,
        "--rerank",
        "--reranking",
        dest="rerank",
        env="LLAMA_ARG_RERANKING",
        action="store_true",
        help="-m is for /v1/rerank, and writes no text",
    )
    add_flag(
        group,
        "--pooling",
        env="LLAMA_ARG_POOLING",
        type=one_of(*_POOLINGS),
        metavar="|".join(_POOLINGS),
        help="how a text's tokens become one vector (default: as the embedding model says)",
    )
    group.add_argument(
        "--embd-normalize",
        type=int,
        default=2,
        metavar="N",
        help="-1 none, 0 largest is 32760, 1 taxicab, 2 Euclid, N p-norm (default: 2)",
    )


def writes_no_text(args: argparse.Namespace) -> bool:
    """Whether no engine is needed: the target itself is for embeddings or scores, or only a second model is named."""
    return bool(args.embedding or args.rerank) or bool(
        (args.embedding_model or args.rerank_model) and not args.model and not args.hf_repo
    )


def _purposes(args: argparse.Namespace) -> set[str]:
    """What -m is for instead of text; `--pooling rank` makes embeddings scores, as in llama-server."""
    purposes = {purpose for purpose in ("embedding", "rerank") if getattr(args, purpose)}
    return {"rerank"} if purposes and args.pooling == "rank" else purposes


def _pooling(args: argparse.Namespace) -> str | None:
    """The pooling of an embedding model; one for scores has its own."""
    return None if args.pooling == "rank" else args.pooling


def check_embedding_flags(args: argparse.Namespace) -> None:
    """Refuse flags that would be ignored.

    Raises:
        RequestError: two models for one purpose, or a pooling without a model.
    """
    for own, flag in (("embedding", "--embedding"), ("rerank", "--reranking")):
        if own in _purposes(args) and getattr(args, f"{own}_model"):
            raise RequestError(
                f"{flag} and --{own}-model both name a model", param=f"--{own}-model", hint="give one of them"
            )
    if _pooling(args) and not (args.embedding or args.embedding_model):
        raise RequestError(
            "--pooling is for embeddings", param="--pooling", hint="give --embedding or --embedding-model, too"
        )
    if not -1 <= args.embd_normalize <= 64:
        raise RequestError("--embd-normalize must be from -1 to 64", param="--embd-normalize")


def embedding_settings(args: argparse.Namespace, target: str, name: str) -> dict[str, Any]:
    """Fields of the server's Settings; `target` is the file of -m, and `name` its name. Downloads models given by name.

    Raises:
        HubError: a model cannot be fetched.
        ModelError: a file is damaged, or not an embedding model.
    """
    options: dict[str, ModelOptions | None] = {"embedding": None, "rerank": None}
    for purpose in options:
        pooling = "rank" if purpose == "rerank" else _pooling(args)
        if purpose in _purposes(args):
            options[purpose] = _options(args, target, name, pooling, args.n_ctx)
        elif (text := getattr(args, f"{purpose}_model")) is not None:
            path = local_target(text, args)
            options[purpose] = _options(args, str(path), Path(text).name, pooling, 0)
    return {**options, "embd_normalize": args.embd_normalize}


def _options(args: argparse.Namespace, path: str, name: str, pooling: str | None, n_ctx: int) -> ModelOptions:
    from dflash_local.machine.hardware import this_machine, usable_cores
    from dflash_local.native import check_embedding_gguf
    from dflash_local.server.embeddings.options import ModelOptions

    check_embedding_gguf(path)
    return ModelOptions(
        path=path,
        name=name,
        n_ctx=n_ctx,
        pooling=pooling,
        n_threads=args.n_threads_batch or args.n_threads or min(this_machine().cores, usable_cores()),
        n_gpu_layers=args.n_gpu_layers,
        mmap=args.load_mode in ("auto", "mmap", "mmap+mlock"),
        verbose=args.verbosity > 3,
    )
