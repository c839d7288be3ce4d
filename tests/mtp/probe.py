"""What llama.cpp itself drafts with the MTP layers of the tiny models: `python -m tests.mtp.probe FOLDER NAME...`
writes each model into the folder, and prints a line of JSON for each: a greedy text, and what is drafted after each of
its tokens, as common/speculative.cpp (draft-mtp) does it.

Run in a process of its own, because llama_cpp puts a Python callback behind llama.cpp's log.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as llama  # no public name has the low-level API and its library
import numpy as np
import numpy.typing as npt

from tests.fuzz import gguf_image
from tests.taps.make import make

from .assistant import path_of
from .assistant import write as write_assisted
from .models import ARCHS, ASSISTED, appended, header, trained

Array = npt.NDArray[np.float32]

PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46]
N_ANSWER, N_DRAFT, TOP = 12, 4, 8

library = llama._lib
Floats = ctypes.POINTER(ctypes.c_float)
set_nextn = library._Z26llama_set_embeddings_nextnP13llama_contextbb
set_nextn.argtypes = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool]
get_nextn = library._Z26llama_get_embeddings_nextnP13llama_context
get_nextn.argtypes, get_nextn.restype = [ctypes.c_void_p], Floats
get_nextn_of = library._Z30llama_get_embeddings_nextn_ithP13llama_contexti
get_nextn_of.argtypes, get_nextn_of.restype = [ctypes.c_void_p, ctypes.c_int32], Floats
set_tap = library._Z30llama_set_embeddings_layer_inpP13llama_contextjb
set_tap.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool]
set_head = library._Z28llama_set_nextn_layer_offsetP13llama_contexti
set_head.argtypes = [ctypes.c_void_p, ctypes.c_int32]


class Row(NamedTuple):
    token: int
    state: Array | None = None  # the hidden state before it
    output: bool = False


class Context:
    """A llama.cpp context that computes in f32."""

    def __init__(self, model: Any, kind: int, target: Context | None = None) -> None:
        params = llama.llama_context_default_params()
        params.ctx_other = target.pointer if target else None
        params.ctx_type, params.n_ctx, params.n_batch, params.n_ubatch = kind, 256, 64, 64
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = params.flash_attn_type = 0  # f32, none
        self.pointer: Any = llama.llama_init_from_model(model, params)
        assert self.pointer
        set_nextn(self.pointer, True, kind == llama.LLAMA_CONTEXT_TYPE_MTP)
        set_tap(self.pointer, 0, False)  # plans the memory anew: deepseek4 has another graph now

    def cut(self, first: int) -> None:
        assert llama.llama_memory_seq_rm(llama.llama_get_memory(self.pointer), 0, first, -1)

    def run(self, rows: Sequence[Row], first: int) -> None:
        """Compute rows at the positions from `first` on, instead of those that are there."""
        self.cut(first)
        batch = llama.llama_batch_ext_init(self.pointer)
        for i, row in enumerate(rows):
            assert llama.llama_batch_ext_add_token(batch, 0, row.token) == i
            llama.llama_batch_ext_set_pos(batch, i, ctypes.c_int32(first + i))
            llama.llama_batch_ext_set_output_logits(batch, i, row.output)
            if row.state is not None:
                embd = llama.llama_embd(row.state.ctypes.data_as(Floats), 1, len(row.state))
                assert llama.llama_batch_ext_set_embd_token(batch, i, embd)
        assert llama.llama_process(self.pointer, 1, batch) == 0
        llama.llama_batch_ext_free(batch)

    def logits(self, row: int, n_vocab: int) -> Array:
        return np.ctypeslib.as_array(llama.llama_get_logits_ith(self.pointer, row), (n_vocab,)).copy()


def load(path: Path) -> Any:
    params = llama.llama_model_default_params()
    params.load_mtp = True
    return llama.llama_model_load_from_file(str(path).encode(), params)


class Reference:
    def __init__(self, path: Path, n_heads: int) -> None:
        self.model, self.assistant = load(path), path_of(path)
        self.target = Context(self.model, llama.LLAMA_CONTEXT_TYPE_DEFAULT)
        layers = load(self.assistant) if self.assistant else self.model
        self.mtp = Context(layers, llama.LLAMA_CONTEXT_TYPE_MTP, self.target if self.assistant else None)
        self.n_vocab = int(llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model)))
        self.width = int(llama.llama_model_n_embd_out(self.model))
        self.n_heads = n_heads

    def greedy(self) -> tuple[list[int], Array]:
        """A text, and the hidden state of each of its tokens."""
        text, states, at = list(PROMPT), [], 0
        while True:
            rows = [Row(token, output=i == len(text) - 1) for i, token in enumerate(text)][at:]
            self.target.run(rows, at)
            states.append(np.ctypeslib.as_array(get_nextn(self.target.pointer), (len(rows), self.width)).copy())
            if len(text) == len(PROMPT) + N_ANSWER:
                return text, np.concatenate(states)
            at = len(text)
            text.append(int(self.target.logits(len(rows) - 1, self.n_vocab).argmax()))

    def drafts(self, text: list[int], states: Array, anchor: int) -> list[dict[int, float]]:
        """The likeliest tokens for each position after `anchor`, with their probabilities, each after the likeliest of
        the positions before."""
        before = np.concatenate([np.zeros((1, self.width), np.float32), states])
        rows = [Row(text[i], before[i]) for i in range(anchor)]
        if self.assistant:  # which sees what the target holds
            self.target.cut(anchor)
        for head in range(0 if self.assistant else self.n_heads):
            set_head(self.mtp.pointer, head)
            self.mtp.run(rows, 0)
        path, found = [Row(text[anchor], before[anchor], True)], []
        for step in range(min(N_DRAFT, self.n_heads) if self.n_heads > 1 else N_DRAFT):
            set_head(self.mtp.pointer, step if self.n_heads > 1 else 0)
            first = 0 if self.n_heads > 1 else step
            self.mtp.run(path[first:], anchor + (0 if self.assistant else first))
            logits = self.mtp.logits(len(path) - 1 - first, self.n_vocab)
            probs = np.exp(logits - logits.max(), dtype=np.float64)
            best = [int(token) for token in logits.argsort()[::-1][:TOP]]
            found.append({token: float(probs[token] / probs.sum()) for token in best})
            state = np.ctypeslib.as_array(get_nextn_of(self.mtp.pointer, len(path) - 1 - first), (self.width,))
            path = [Row(row.token, row.state) for row in path] + [Row(best[0], state.copy(), True)]
        return found


def write(name: str, folder: Path) -> Path:
    """The model of a name such as mimo2-3: architecture and heads."""
    if name == ASSISTED:
        return write_assisted(folder)
    arch, _, heads = name.rpartition("-")
    path, keys = folder / f"{name}.gguf", folder / f"{name}.keys"
    keys.write_bytes(header(arch, int(heads) if arch in ARCHS else 0).encode()[0])
    make(keys, path, mtp=arch in ARCHS)
    made = gguf_image.read(path)
    path.write_bytes(trained(made if arch in ARCHS else appended(made, arch), arch, int(heads)).encode()[0])
    return path


def main() -> None:
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        path = write(name, folder)
        arch, _, heads = name.rpartition("-")
        if arch not in ARCHS and name != ASSISTED:
            continue
        reference = Reference(path, int(heads) if arch else 1)
        text, states = reference.greedy()
        anchors = range(len(PROMPT), len(text))
        drafts = [reference.drafts(text, states, anchor) for anchor in reversed(anchors)][::-1]
        print(json.dumps({"name": name, "text": text, "drafts": drafts}), flush=True)


if __name__ == "__main__":
    main()
