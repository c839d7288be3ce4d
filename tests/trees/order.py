"""Sequences share a small cache whose cells are kept in order: `python -m tests.trees.order MODEL ordered flash` prints
what it saw.

Run by test_cells.py in a process of its own (see batch.py). The engine's slots hardly ever fill a cache so unevenly
that it has to be packed; here a sequence may have all of it, and share what it has with others.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from collections import Counter
from typing import Any

import llama_cpp.llama_cpp as llama  # no public name has the low-level API and its library

from . import batch
from .forest import chain, random_tree, words
from .twin import distance

CELLS, SEQUENCES, ROWS = 256, 5, 48

order_cells = batch.library._ZN6dflash18access_order_cellsEP13llama_context
order_cells.argtypes, order_cells.restype = [ctypes.c_void_p], None
packs = batch.library._ZN6dflash12access_packsEPK13llama_context
packs.argtypes, packs.restype = [ctypes.c_void_p], ctypes.c_int64


class Context(batch.Context):
    """A context of CELLS cells for SEQUENCES, sliding windows of full size; f16 and flash attention, or f32 and
    transposed V."""

    def __init__(self, model: Any, ordered: bool, flash: bool) -> None:
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = CELLS, CELLS, ROWS, SEQUENCES
        params.n_threads = params.n_threads_batch = 1
        params.flash_attn_type, params.kv_unified, params.swa_full = int(flash), True, True
        params.type_k = params.type_v = 1 if flash else 0  # f16, f32
        self.context = llama.llama_init_from_model(model, params)
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_ext_init(self.context)
        if ordered:
            order_cells(self.context)


def main(file: str, ordered: bool, flash: bool, steps: int = 600) -> dict[str, Any]:
    """Random sequences grow, by chains and trees, are cut, forgotten, shared, saved and restored.

    `differ`: rows whose logits are not those of their sequence alone in a cache, bit for bit;
    `refused`: passes that were, `full`: those for which too few cells were free; `packed`: how often cells were;
    `done`: what, how often.
    """
    rng = random.Random(0)
    model = llama.llama_model_load_from_file(file.encode(), llama.llama_model_default_params())
    ours, alone = Context(model, ordered, flash), Context(model, ordered, flash)
    held: list[list[tuple[int, int]]] = [[] for _ in range(SEQUENCES)]  # (token, which cell: copies share it)
    least = [
        0
    ] * SEQUENCES  # a saved state has only the window of a sliding window: the shortest that a sequence can be cut to
    done: Counter[str] = Counter()
    seen = {"differ": 0, "rows": 0, "refused": 0, "full": 0}

    def remove(seq: int, start: int) -> None:
        assert llama.llama_memory_seq_rm(ours.memory, seq, start, -1)
        del held[seq][start:]
        least[seq] = min(least[seq], start)

    def used() -> int:
        return len({cell for tokens in held for _, cell in tokens})

    for step in range(steps):
        seq, other = rng.sample(range(SEQUENCES), 2)
        what = rng.choices(["grow", "branch", "cut", "forget", "share", "move"], [16, 12, 3, 1, 3, 1])[0]
        if what == "cut":
            remove(seq, rng.randint(least[seq], len(held[seq])))
        elif what == "forget":
            remove(seq, 0)
        elif what == "share":
            remove(other, 0)
            n = rng.randint(least[seq], len(held[seq]))
            llama.llama_memory_seq_cp(ours.memory, seq, other, 0, n)
            held[other], least[other] = held[seq][:n], least[seq]
        elif what == "move" and held[seq] and used() + len(held[seq]) <= CELLS:  # through a saved state
            size = llama.llama_state_seq_get_size(ours.context, seq)
            state = (ctypes.c_uint8 * size)()
            assert llama.llama_state_seq_get_data(ours.context, state, size, seq) == size
            tokens = [token for token, _ in held[seq]]
            remove(seq, 0)
            remove(other, 0)
            assert llama.llama_state_seq_set_data(ours.context, state, size, other) == size
            held[other] = [(token, (step << 10) + i) for i, token in enumerate(tokens)]
            least[other] = len(tokens) if llama.llama_model_n_swa(model) > 0 else 0
        elif what in ("grow", "branch"):
            start = len(held[seq])
            tree = chain(words(rng, rng.randint(1, ROWS))) if what == "grow" else random_tree(rng, ROWS)
            rows = len(tree.tokens)
            full = used() + rows > CELLS
            ours.add(seq, tree, start)
            refused = ours.process() != 0
            seen["refused"] += refused
            seen["full"] += full
            if refused:
                continue
            got = ours.logits(rows)
            path = tree.path(rng.randrange(rows))
            if tree.parents == list(range(-1, rows - 1)):
                path = path[: rng.randint(1, len(path))]
                llama.llama_memory_seq_rm(ours.memory, seq, start + len(path), -1)
            else:
                assert ours.commit(seq, path)
            llama.llama_memory_clear(alone.memory, True)
            text = [token for token, _ in held[seq]] + tree.text(path)
            alone.add(0, chain(text), 0)
            assert alone.process() == 0
            want = alone.logits(len(text))[start:]
            seen["rows"] += len(path)
            seen["differ"] += int((distance(got[path], want) > 0.0).sum())
            held[seq] += [(token, (step << 10) + i) for i, token in enumerate(tree.text(path))]
        done[what] += 1
    return {**seen, "packed": packs(ours.context), "done": dict(done)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2] == "ordered", sys.argv[3] == "flash")))
