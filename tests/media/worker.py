"""The process that damaged projectors may end: loads them one after the other, each with a text model, lets it read a
picture or a sound, and reports on each, one JSON line.

    python -m tests.media.worker NAME - projector FOLDER ITEM...

NAME: a type of tiny_projectors.py. An ITEM is a range of seeds of mutations.py, or `no:TENSOR`, `no:KEY` for a sound
file without one. As in tests/fuzz/worker.py, a sound engine stays loaded and must give its first answer again after
every file.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import psutil

from dflash_local.engine import Engine
from dflash_local.errors import DFlashError
from dflash_local.media.medium import Medium
from dflash_local.sampling import SamplingParams
from tests.fuzz.worker import CPU_SECONDS, WALL_SECONDS, say, watch

from . import samples
from .mutations import damage
from .tiny_projectors import PROJECTORS, Files, projector, write


def picture(width: int, height: int) -> Medium:
    """Random pixels."""
    data = np.random.default_rng(1).integers(0, 255, (height, width, 3), np.uint8).tobytes()
    return Medium("image", data, width, height, sha256(data).digest())


def sound(n: int) -> Medium:
    """`n` random samples at 16 kHz."""
    data = samples.wav(samples=random.Random(1).randbytes(2 * n))
    return Medium("audio", data, 0, 0, sha256(data).digest())


def open_engine(files: Files, n_ctx: int = 2048, image_max_tokens: int = 0) -> Engine:
    """The text model with its projector."""
    return Engine(
        files.model, mmproj=files.mmproj, n_ctx=n_ctx, image_max_tokens=image_max_tokens,
        n_threads=1, n_threads_batch=1, warmup=False, cost_cache=False,
    )  # fmt: skip


def read(engine: Engine, medium: Medium) -> list[int]:
    """The answer to a prompt of one medium."""
    tokens = engine.tokenize_prompt(f"<end>{engine.abilities.marker}<end>", [medium])
    return (
        engine.submit(tokens, max_tokens=4, sampling=SamplingParams(temperature=0), cache_prompt=False).result().tokens
    )


def medium_for(name: str) -> Medium:
    """What the projector reads."""
    return sound(16_000) if PROJECTORS[name].audio else picture(40, 24)


def use(files: Files, medium: Medium) -> str:
    """How far it got: an error is a fine result, as long as it is one of ours."""
    try:
        engine = open_engine(files)
    except DFlashError as error:
        return f"refused: {error.message}"
    with engine:
        try:
            read(engine, medium)
        except DFlashError as error:
            return f"failed: {error.message}"
    return "answered"


def damaged_files(name: str, items: list[str]) -> Iterator[tuple[str, str, bytes]]:
    """Name, description and content of each file."""
    whole = projector(name)
    for item in items:
        if item.startswith("no:"):
            image, gone = whole.copy(), item[3:].encode()
            image.tensors = [tensor for tensor in image.tensors if tensor.name != gone]
            image.pairs = [pair for pair in image.pairs if pair.key != gone]
            yield item, item, image.encode()[0]
            continue
        first, end = map(int, item.split(":"))
        for seed in range(first, end):
            yield str(seed), *damage(whole, seed)


def main(name: str, folder: Path, items: list[str]) -> None:
    files = write(name, folder)
    damaged = files._replace(mmproj=folder / "damaged.gguf")
    medium = medium_for(name)
    witness = open_engine(files)
    expected = read(witness, medium)
    for item, what, raw in damaged_files(name, items):
        damaged.mmproj.write_bytes(raw)
        say(item=item, what=what)
        watch(CPU_SECONDS, WALL_SECONDS)
        result = use(damaged, medium)
        again = read(witness, medium)
        watch(0, 0)
        say(item=item, result=result, witness=again == expected, rss=psutil.Process().memory_info().rss)
    witness.close()


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what ggml prints is no report
    main(sys.argv[1], Path(sys.argv[4]), sys.argv[5:])
