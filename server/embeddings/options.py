"""ModelOptions: how an embedding model is loaded."""

from __future__ import annotations

from dataclasses import dataclass

POOLINGS = ("none", "mean", "cls", "last", "rank")  # in the order of enum llama_pooling_type


@dataclass(frozen=True)
class ModelOptions:
    """What is known before a model is loaded.

    Args:
        path: a GGUF file.
        name: what clients call it.
        n_ctx: tokens of the longest text; 0: what the model was trained with, 8192 at most.
        pooling: how rows become one vector, one of POOLINGS; None: as the model says.
        n_threads: CPU threads.
        n_gpu_layers: layers on the GPU; -1: all.
        mmap: map the file instead of reading it.
        verbose: log what llama.cpp says.
    """

    path: str
    name: str
    n_ctx: int = 0
    pooling: str | None = None
    n_threads: int = 1
    n_gpu_layers: int = 0
    mmap: bool = True
    verbose: bool = False
