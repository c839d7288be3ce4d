"""worker.py for embedding models: each damaged file is checked, loaded and used as the server's own worker does it.

    python -m tests.fuzz.embedding_worker MODEL - embed|rank FOLDER ITEM...

What ends this process would end that one: the server lives on, but such a file has to be refused.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from pathlib import Path

import psutil

from dflash_local.errors import DFlashError
from dflash_local.native import check_embedding_gguf
from dflash_local.server.embeddings.embedding_model import EmbeddingModel
from dflash_local.server.embeddings.options import ModelOptions

from .gguf_image import read
from .worker import CPU_SECONDS, WALL_SECONDS, damaged_files, say, watch

TEXTS = ["", "a", "The cat sat on the mat.", "x " * 40]


def use(path: Path, pooling: str | None) -> str:
    """How far it got: an error is a fine result, as long as it is one of ours."""
    try:
        check_embedding_gguf(path)
        model = EmbeddingModel(ModelOptions(str(path), path.name, n_ctx=64, pooling=pooling))
    except DFlashError as error:
        return f"refused: {error.message}"
    try:
        pairs = [model.pairing("a")(text) for text in TEXTS] if model.pooling == "rank" else []
        texts = pairs or [model.tokens_of(text) for text in TEXTS]
        list(model.run([tokens for tokens in texts if 0 < len(tokens) <= model.n_ctx]))
    except DFlashError as error:
        return f"failed: {error.message}"
    finally:
        model.close()
    return "answered"


def main(sound: Path, role: str, folder: Path, items: list[str]) -> None:
    damaged = folder / "damaged.gguf"
    for item, what, raw in damaged_files(read(sound), items):
        damaged.write_bytes(raw)
        say(item=item, what=what)
        watch(CPU_SECONDS, WALL_SECONDS)
        result = use(damaged, "rank" if role == "rank" else None)
        watch(0, 0)
        say(item=item, result=result, witness=True, rss=psutil.Process().memory_info().rss)


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what llama.cpp prints is no report
    main(Path(sys.argv[1]), sys.argv[3], Path(sys.argv[4]), sys.argv[5:])
