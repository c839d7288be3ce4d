"""Reads media with mtmd itself, without libdflash: for tests of projectors, whose process may end.

    python -m tests.media.reader MODEL MMPROJ image WIDTHxHEIGHT | audio SECONDS | audio SAMPLESs

Prints one JSON line: how far it got.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("LLAMA_CPP_LIB_PATH", "")
if not os.environ["LLAMA_CPP_LIB_PATH"]:
    del os.environ["LLAMA_CPP_LIB_PATH"]

import llama_cpp.llama_cpp as llama
from llama_cpp import mtmd_cpp as mtmd

N_CTX = 8192
DIRTY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}  # an environment


def picture(width: int, height: int) -> Any:
    rows = np.random.default_rng(1).integers(0, 255, (height, width, 3), np.uint8)
    return mtmd.mtmd_bitmap_init(width, height, rows.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))


def noise(samples: int) -> Any:
    wave = np.random.default_rng(1).normal(0, 0.1, max(samples, 1)).astype(np.float32)
    return mtmd.mtmd_bitmap_init_from_audio(samples, wave.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))


class Reader:
    """A text model with its projector."""

    def __init__(self, model: Path, mmproj: Path, *, warmup: bool = False, flash: int = -1) -> None:
        llama.llama_backend_init()
        params = llama.llama_model_default_params()
        self.model = llama.llama_load_model_from_file(str(model).encode(), params)
        context = llama.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch, context.n_threads, context.n_threads_batch = (
            N_CTX,
            512,
            512,
            1,
            1,
        )
        self.context = llama.llama_new_context_with_model(self.model, context)
        settings = mtmd.mtmd_context_params_default()
        settings.use_gpu, settings.n_threads, settings.warmup, settings.print_timings = False, 1, warmup, False
        settings.flash_attn_type = flash
        self.mtmd = mtmd.mtmd_init_from_file(str(mmproj).encode(), self.model, settings)

    def read(self, bitmap: Any, prompt: str = "<end><__media__><end>") -> dict[str, Any]:
        """Tokenize, encode and decode a prompt with one medium: how far it got, its tokens, the time and the memory."""
        chunks = mtmd.mtmd_input_chunks_init()
        words = prompt.encode()
        text = mtmd.mtmd_input_text(words, len(words), True, True)
        start = time.monotonic()
        status = mtmd.mtmd_tokenize(self.mtmd, chunks, ctypes.byref(text), (ctypes.c_void_p * 1)(bitmap), 1)
        mtmd.mtmd_bitmap_free(bitmap)
        if status != 0:
            return {"result": f"no tokens: {status}"}
        found = {"chunks": mtmd.mtmd_input_chunks_size(chunks), "tokens": mtmd.mtmd_helper_get_n_tokens(chunks),
                 "tokenize_s": round(time.monotonic() - start, 2)}  # fmt: skip
        if found["tokens"] > N_CTX - 16:
            start = time.monotonic()
            for i in range(found["chunks"]):
                chunk = mtmd.mtmd_input_chunks_get(chunks, i)
                if mtmd.mtmd_input_chunk_get_type(chunk) and mtmd.mtmd_encode_chunk(self.mtmd, chunk) != 0:
                    return found | {"result": "not encoded"}
            return found | {"result": "encoded", "encode_s": round(time.monotonic() - start, 2)}
        past = llama.llama_pos(0)
        start = time.monotonic()
        status = mtmd.mtmd_helper_eval_chunks(self.mtmd, self.context, chunks, 0, 0, 256, True, ctypes.byref(past))
        found["encode_s"] = round(time.monotonic() - start, 2)
        if status != 0:
            return found | {"result": f"no rows: {status}"}
        logits = llama.llama_get_logits_ith(self.context, -1)
        n_vocab = llama.llama_n_vocab(llama.llama_model_get_vocab(self.model))
        values = np.ctypeslib.as_array(logits, (n_vocab,))
        mtmd.mtmd_input_chunks_free(chunks)
        return found | {"result": "answered" if np.isfinite(values).all() else "not finite"}


def dirty_memory() -> None:
    """Leave NaN in free memory, so that a graph that reads what nobody wrote shows it. glibc hands it out again if it
    is started with DIRTY."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(3 << 20) for _ in range(60)]
    for block in blocks:
        ctypes.memset(block, 0xFF, 3 << 20)
        libc.free(block)


def medium(kind: str, size: str) -> Any:
    if kind == "image":
        width, height = map(int, size.split("x"))
        return picture(width, height)
    return noise(int(size[:-1]) if size.endswith("s") else int(float(size) * 16000))


def main(model: str, mmproj: str, kind: str, *sizes: str) -> None:
    reader = Reader(Path(model), Path(mmproj))
    if not reader.mtmd:
        print(json.dumps({"result": "refused"}), flush=True)
        return
    for size in sizes:
        print(json.dumps({"size": size}), flush=True)
        dirty_memory()
        found = reader.read(medium(kind, size))
        llama.llama_memory_clear(llama.llama_get_memory(reader.context), True)
        found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(json.dumps({"size": size} | found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
