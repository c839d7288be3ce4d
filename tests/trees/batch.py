"""Trees given to llama.cpp itself, with no engine in between: `python -m tests.trees.batch MODEL` prints what it saw as
JSON.

Run by test_batch.py in a process of its own, because llama_cpp puts a Python callback behind llama.cpp's log.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from collections.abc import Callable
from typing import Any

import llama_cpp.llama_cpp as llama  # no public name has the low-level API and its library
import numpy as np

from .forest import Tree, bush, chain, grow, levels, line, star, words
from .models import N_VOCAB
from .twin import Array, distance

N_UBATCH = 16
SEEN: dict[str, Any] = {}

library = llama._lib
library.llama_batch_ext_set_parent.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
library.llama_batch_ext_set_parent.restype = ctypes.c_bool
library.llama_memory_seq_commit.argtypes = [
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_int32),
    ctypes.c_int32,
]
library.llama_memory_seq_commit.restype = ctypes.c_bool


class Context:
    """A context in f32 whose passes have at most N_UBATCH rows unless told otherwise."""

    def __init__(self, model: Any, kv_unified: bool, n_ubatch: int = N_UBATCH) -> None:
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 3 * 256, 128, n_ubatch, 3
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0  # f32
        params.flash_attn_type = 0
        params.kv_unified, params.swa_full = kv_unified, False
        self.context = llama.llama_init_from_model(model, params)
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_ext_init(self.context)

    def close(self) -> None:
        llama.llama_batch_ext_free(self.batch)
        llama.llama_free(self.context)

    def add(self, seq: int, tree: Tree, start: int, depths: list[int] | None = None) -> None:
        """Rows of a tree, the anchor at position `start`; `depths` lies about their positions."""
        rows: list[int] = []
        for i, (token, parent) in enumerate(zip(*tree, strict=True)):
            rows.append(llama.llama_batch_ext_add_token(self.batch, seq, token))
            depth = depths[i] if depths else len(tree.path(i)) - 1
            llama.llama_batch_ext_set_pos(self.batch, rows[-1], ctypes.c_int32(start + depth))
            llama.llama_batch_ext_set_output_logits(self.batch, rows[-1], True)
            if parent >= 0:
                assert library.llama_batch_ext_set_parent(self.batch, rows[-1], rows[parent])

    def process(self) -> int:
        """Run the batch and empty it: llama_decode's result."""
        result = int(llama.llama_process(self.context, 1, self.batch))
        llama.llama_batch_ext_clear(self.batch)
        return result

    def logits(self, n: int) -> Array:
        return np.array([llama.llama_get_logits_ith(self.context, i)[:N_VOCAB] for i in range(n)], np.float32)

    def commit(self, seq: int, path: list[int]) -> bool:
        return bool(library.llama_memory_seq_commit(self.memory, seq, (ctypes.c_int32 * len(path))(*path), len(path)))

    def last(self, seq: int) -> int:
        """The highest position in use, -1 if there is none."""
        return int(llama.llama_memory_seq_pos_max(self.memory, seq))

    def read(self, seq: int, tokens: list[int]) -> None:
        for at in range(0, len(tokens), N_UBATCH):
            self.add(seq, chain(tokens[at : at + N_UBATCH]), at)
            assert self.process() == 0

    def alone(self, seq: int, tree: Tree, start: int) -> Array:
        """Logits of a tree's rows, each path fed alone."""
        out = np.full((len(tree.tokens), N_VOCAB), np.nan, np.float32)
        for leaf in tree.leaves():
            path = tree.path(leaf)
            parts = []
            for at in range(0, len(path), N_UBATCH):
                self.add(seq, chain(tree.text(path[at : at + N_UBATCH])), start + at)
                assert self.process() == 0
                parts.append(self.logits(len(path[at : at + N_UBATCH])))
            out[path] = np.concatenate(parts)
            llama.llama_memory_seq_rm(self.memory, seq, start, -1)
        return out


def whole(model: Any, rng: random.Random) -> None:
    """Trees that together are too many rows for a pass are computed one after the other, each whole."""
    for kv_unified in (True, False):
        ours, alone = Context(model, kv_unified), Context(model, True)
        pasts = [words(rng, n) for n in (50, 3, 20)]
        for context in (ours, alone):
            for seq, past in enumerate(pasts):
                context.read(seq, past)
        worst = 0.0
        for sizes in ((10, 10, 10), (16, 9, 12), (7, 7, 2), (1, 16, 1)):
            trees = [grow(levels(rng, n), rng) for n in sizes]
            for seq, tree in enumerate(trees):
                ours.add(seq, tree, len(pasts[seq]))
            assert ours.process() == 0
            got = ours.logits(sum(sizes))
            want = np.concatenate([alone.alone(seq, tree, len(pasts[seq])) for seq, tree in enumerate(trees)])
            worst = max(worst, float(distance(got, want).max()))
            for seq, tree in enumerate(trees):
                if len(tree.tokens) > 1 and tree.parents != line(rng, len(tree.tokens)):
                    assert ours.commit(seq, [])
                else:
                    llama.llama_memory_seq_rm(ours.memory, seq, len(pasts[seq]), -1)
        SEEN[f"whole trees, kv_unified={kv_unified}"] = worst
        ours.close()
        alone.close()


def windows(model: Any) -> None:
    """A tree must not take the cells of another tree's window, although it is placed after it: the other's path may end
    early."""
    worst = 0.0
    for seed in (3, 30, 32, 33):  # layouts in which that once happened
        rng = random.Random(seed)
        ours, alone = Context(model, True), Context(model, True)
        pasts = [words(rng, rng.randint(60, 200)) for _ in range(3)]
        for seq in rng.sample(range(3), 3):
            ours.read(seq, pasts[seq])
        alone.read(0, pasts[0])
        length = len(pasts[0])
        deep = grow([*range(-1, N_UBATCH - 2), 0], rng)
        for seq, tree in enumerate((deep, *(grow(star(rng, N_UBATCH), rng) for _ in range(2)))):
            ours.add(seq, tree, len(pasts[seq]))
        assert ours.process() == 0 and all(ours.commit(seq, [0]) for seq in range(3))
        alone.add(0, chain(deep.tokens[:1]), length)
        assert alone.process() == 0
        text = chain(words(rng, 5))
        found = []
        for context in (ours, alone):
            context.add(0, text, length + 1)
            assert context.process() == 0
            found.append(context.logits(5))
            context.close()
        worst = max(worst, float(distance(*found).max()))
    SEEN["windows of other trees"] = worst


def interleave(context: Context) -> None:
    context.add(0, chain([1, 2]), 10)
    context.add(1, chain([1]), 0)
    context.add(0, chain([3]), 11)
    library.llama_batch_ext_set_parent(context.batch, 3, 0)


def adopt(context: Context) -> None:
    context.add(1, chain([1, 2]), 0)
    context.add(0, chain([3, 4]), 10)
    library.llama_batch_ext_set_parent(context.batch, 3, 0)


FORK = Tree([1, 2, 3, 4], [-1, 0, 0, 1])
WIDE = "more than 64 nodes"
# After a past of 10 tokens in sequence 0.
BAD: dict[str, Callable[[Context], None]] = {
    "more rows than a pass": lambda context: context.add(0, Tree([1] * 17, [-1] + [0] * 16), 10),
    WIDE: lambda context: context.add(0, Tree([1] * 65, [-1] + [0] * 64), 10),
    "positions that are not depths": lambda context: context.add(0, FORK, 10, [0, 1, 1, 3]),
    "siblings at two positions": lambda context: context.add(0, FORK, 10, [0, 1, 2, 2]),
    "a gap after the past": lambda context: context.add(0, FORK, 12),
    "a tree over the past": lambda context: context.add(0, FORK, 5),
    "another sequence's rows in between": interleave,
    "a parent in another sequence": adopt,
}


def refused(model: Any, rng: random.Random) -> None:
    """Batches whose rows are no trees, or that no pass holds: an error, and the memory is as before."""
    for kv_unified in (True, False):
        context, wide = Context(model, kv_unified), Context(model, kv_unified, 128)
        past = words(rng, 10)
        for one in (context, wide):
            one.read(0, past)
        for name, add in BAD.items():
            one = wide if name == WIDE else context
            add(one)
            SEEN[f"refused, kv_unified={kv_unified}: {name}"] = (
                one.process() != 0 and one.last(0) == 9 and one.last(1) == -1
            )
        context.add(0, FORK, 10)
        SEEN[f"accepted afterwards, kv_unified={kv_unified}"] = context.process() == 0 and context.commit(0, [0, 1, 3])
        context.close()
        wide.close()


def pending(model: Any, rng: random.Random) -> None:
    """Until a tree is committed its sequence can be forgotten, and nothing else."""
    context = Context(model, True)
    past, tree = words(rng, 10), grow(bush(rng, 12), rng)
    deepest = max(len(tree.path(i)) for i in range(12)) + 9
    context.read(0, past)
    context.read(1, past)
    context.add(0, tree, 10)
    assert context.process() == 0
    memory = context.memory
    context.add(0, chain([1]), deepest + 1)
    SEEN["pending: decoded"] = context.process() == 0
    llama.llama_memory_seq_cp(memory, 0, 2, -1, -1)
    SEEN["pending: copied"] = context.last(2) >= 0
    llama.llama_memory_seq_add(memory, 0, 0, -1, 5)
    SEEN["pending: shifted"] = context.last(0) != deepest
    SEEN["pending: cut"] = bool(llama.llama_memory_seq_rm(memory, 0, 11, -1))
    SEEN["pending: saved"] = (
        llama.llama_state_seq_get_size(context.context, 0) > 0 or llama.llama_state_get_size(context.context) > 0
    )
    SEEN["pending: another sequence saved"] = llama.llama_state_seq_get_size(context.context, 1) > 0
    leaf = tree.path(tree.leaves()[-1])
    for name, path in {"gap": [0, 0, 1], "beyond": [0, 12], "inside": [leaf[-1]], "negative": [-1]}.items():
        SEEN[f"pending: committed {name}"] = context.commit(0, path)
    SEEN["pending: unharmed"] = context.last(0) == deepest
    SEEN["committed"] = context.commit(0, leaf) and context.last(0) == 9 + len(leaf)
    SEEN["committed twice"] = context.commit(0, leaf)
    context.add(0, chain([1]), 10 + len(leaf))
    SEEN["decoded afterwards"] = context.process() == 0
    context.add(0, tree, 11 + len(leaf))
    SEEN["forgotten"] = (
        context.process() == 0 and bool(llama.llama_memory_seq_rm(memory, 0, -1, -1)) and context.last(0) == -1
    )
    context.add(0, tree, 0)
    SEEN["used again"] = context.process() == 0
    llama.llama_memory_seq_keep(memory, 1)
    context.add(0, tree, 0)
    SEEN["used again after seq_keep of another"] = context.process() == 0
    context.close()


def main() -> None:
    model = llama.llama_model_load_from_file(sys.argv[1].encode(), llama.llama_model_default_params())
    for part in (whole, refused, pending):
        part(model, random.Random(part.__name__))
    windows(model)
    print(json.dumps(SEEN))


if __name__ == "__main__":
    main()
