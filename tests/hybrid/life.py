"""Hybrid targets at llama.cpp's own interface: `python -m tests.hybrid.life PART MODEL ...` prints what it saw as JSON.

Run by test_life.py in processes of their own, because llama_cpp puts a Python callback behind llama.cpp's log. What is
right is told by contexts without tapes, which run llama.cpp's own kernels on chains only.
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

from tests.trees import batch
from tests.trees.batch import library
from tests.trees.forest import Tree, bush, grow, random_tree, words
from tests.trees.models import N_VOCAB
from tests.trees.twin import Array, distance

library.llama_memory_set_tree_capacity.argtypes = [ctypes.c_void_p, ctypes.c_int32]
library.llama_memory_set_tree_capacity.restype = ctypes.c_bool
library.llama_memory_can_tree.argtypes = [ctypes.c_void_p]
library.llama_memory_can_tree.restype = ctypes.c_bool

SLOTS, CONTEXT, ROWS, CAPACITY = 3, 512, 256, 64
NONE, PADDING = -1, -2
PARTIAL = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
SEEN: dict[str, Any] = {}


class Context(batch.Context):
    """A context in f32 with SLOTS sequences and one more, that verifies trees of up to `capacity` rows; 0: none."""

    def __init__(self, model: Any, kv_unified: bool, capacity: int, n_rs_seq: int = 0) -> None:
        params = llama.llama_context_default_params()
        params.n_seq_max, params.n_ctx = SLOTS + 1, (SLOTS + 1) * CONTEXT
        params.n_batch, params.n_ubatch, params.n_rs_seq = 4 * ROWS, ROWS, n_rs_seq
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0  # f32
        params.flash_attn_type, params.kv_unified = 0, kv_unified
        self.stop = False
        self.callback = llama.ggml_abort_callback(lambda _: self.stop)
        params.abort_callback = self.callback
        self.context = llama.llama_init_from_model(model, params)
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_ext_init(self.context)
        self.rows = 0
        assert capacity == 0 or library.llama_memory_set_tree_capacity(self.memory, capacity)

    def add_tree(self, seq: int, tree: Tree, start: int, size: int = 0) -> slice:
        """Rows of a tree, padded to `size`. Returns where its logits will be."""
        first = self.rows
        for i, (token, parent) in enumerate(zip(*tree, strict=True)):
            self.add_row(seq, token, start + len(tree.path(i)) - 1, first + parent if parent >= 0 else NONE)
        for _ in range(len(tree.tokens), size):
            self.add_row(seq, 7, start, PADDING)
        return slice(first, first + len(tree.tokens))

    def add_chunk(self, seq: int, tokens: list[int], start: int) -> slice:
        for i, token in enumerate(tokens):
            self.add_row(seq, token, start + i)
        return slice(self.rows - len(tokens), self.rows)

    def add_row(self, seq: int, token: int, pos: int, parent: int | None = None) -> None:
        row = llama.llama_batch_ext_add_token(self.batch, seq, token)
        assert row == self.rows
        self.rows += 1
        llama.llama_batch_ext_set_pos(self.batch, row, ctypes.c_int32(pos))
        llama.llama_batch_ext_set_output_logits(self.batch, row, True)
        if parent is not None:
            assert library.llama_batch_ext_set_parent(self.batch, row, parent)

    def run(self) -> Array | None:
        """The batch's logits, None if it was refused."""
        rows, self.rows = self.rows, 0
        return self.logits(rows) if self.process() == 0 else None

    def must(self) -> Array:
        found = self.run()
        assert found is not None
        return found

    def read(self, seq: int, tokens: list[int]) -> None:
        if tokens:
            self.add_chunk(seq, tokens, self.last(seq) + 1)
            self.must()

    def clear(self, seq: int) -> None:
        assert llama.llama_memory_seq_rm(self.memory, seq, -1, -1)

    def copy(self, seq: int, to: int) -> None:
        llama.llama_memory_seq_cp(self.memory, seq, to, -1, -1)

    def save(self, seq: int, flags: int = 0) -> bytes:
        size = llama.llama_state_seq_get_size_ext(self.context, seq, flags)
        data = (ctypes.c_uint8 * size)()
        return bytes(data[: llama.llama_state_seq_get_data_ext(self.context, data, size, seq, flags)])

    def load(self, seq: int, saved: bytes, flags: int = 0) -> bool:
        data = (ctypes.c_uint8 * len(saved)).from_buffer_copy(saved)
        return bool(llama.llama_state_seq_set_data_ext(self.context, data, len(saved), seq, flags))


class Plain(Context):
    """What is right: llama.cpp without tapes. Sequence SLOTS is for trying what may come."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, True, 0)

    def paths(self, seq: int, tree: Tree) -> Array:
        """Logits of a tree's rows, each path fed alone on top of a sequence."""
        out = np.full((len(tree.tokens), N_VOCAB), np.nan, np.float32)
        start = self.last(seq) + 1
        for leaf in tree.leaves():
            path = tree.path(leaf)
            self.copy(seq, SLOTS)
            self.add_chunk(SLOTS, tree.text(path), start)
            out[path] = self.must()
            self.clear(SLOTS)
        return out

    def chunk(self, seq: int, tokens: list[int]) -> Array:
        self.add_chunk(seq, tokens, self.last(seq) + 1)
        return self.must()


class Life:
    """SLOTS sequences that verify trees, read chunks, go back, are copied, saved, restored and forgotten, beside plain
    ones."""

    def __init__(self, model: Any, kv_unified: bool, rng: random.Random) -> None:
        self.rng = rng
        self.unified = kv_unified
        self.ours, self.plain = Context(model, kv_unified, CAPACITY), Plain(model)
        self.tokens: list[list[int]] = [[] for _ in range(SLOTS)]
        self.pending = [0] * SLOTS  # tokens that the last tree has added
        self.worst = 0.0
        self.counts: dict[str, int] = {}

    def close(self) -> None:
        self.ours.close()
        self.plain.close()

    def compare(self, got: Array, want: Array) -> None:
        self.worst = max(self.worst, float(distance(got, want).max()))

    def set(self, slot: int, tokens: list[int], pending: int) -> None:
        """The plain sequence follows."""
        self.plain.clear(slot)
        self.plain.read(slot, tokens)
        self.tokens[slot], self.pending[slot] = list(tokens), pending

    def append(self, slot: int, tokens: list[int], pending: int) -> None:
        self.plain.read(slot, tokens)
        self.tokens[slot] += tokens
        self.pending[slot] = pending

    def verify(self) -> None:
        """Trees of some slots in one batch, perhaps of one size, perhaps beside a chunk of another slot; then random
        paths of them."""
        rng = self.rng
        slots = rng.sample(range(SLOTS), rng.randint(1, SLOTS))
        chunk = slots.pop() if len(slots) > 1 and rng.random() < 0.3 else None
        trees = {slot: random_tree(rng, rng.choice((4, 16, CAPACITY))) for slot in slots}
        size = max(len(tree.tokens) for tree in trees.values()) if rng.random() < 0.5 else 0
        size = min(size + rng.randint(0, 3), CAPACITY) if size else 0
        places = {slot: self.ours.add_tree(slot, tree, len(self.tokens[slot]), size) for slot, tree in trees.items()}
        text = words(rng, rng.randint(1, 40))
        at = self.ours.add_chunk(chunk, text, len(self.tokens[chunk])) if chunk is not None else slice(0)
        logits = self.ours.must()
        for slot, tree in trees.items():
            self.compare(logits[places[slot]], self.plain.paths(slot, tree))
            path = tree.path(rng.randrange(len(tree.tokens)))
            path = path[: rng.choice((0, 1, 2, 3, 64, 64))]
            if rng.random() < 0.1 and not path:
                assert llama.llama_memory_seq_rm(self.ours.memory, slot, len(self.tokens[slot]) or -1, -1)
            else:
                assert self.ours.commit(slot, path)
            self.append(slot, tree.text(path), len(path))
        if chunk is not None:
            self.compare(logits[at], self.plain.chunk(chunk, text))
            self.tokens[chunk] += text
            self.pending[chunk] = 0

    def read(self) -> None:
        """One pass of chunks, of equal or unequal length."""
        slots = self.rng.sample(range(SLOTS), self.rng.randint(1, SLOTS))
        texts = {slot: words(self.rng, self.rng.choice((1, 1, 2, 30))) for slot in slots}
        places = {slot: self.ours.add_chunk(slot, text, len(self.tokens[slot])) for slot, text in texts.items()}
        logits = self.ours.must()
        for slot, text in texts.items():
            self.compare(logits[places[slot]], self.plain.chunk(slot, text))
            self.tokens[slot] += text
            self.pending[slot] = 0

    def shared(self, slot: int) -> bool:
        return any(self.tokens[slot] == other for i, other in enumerate(self.tokens) if i != slot)

    def back(self) -> None:
        """Forget the end of a slot: of what the last tree has added, any part; more is refused, and nothing has
        changed."""
        slot = self.rng.randrange(SLOTS)
        length = len(self.tokens[slot])
        if length < 2:
            return
        n = self.rng.randint(1, length - 1)
        if self.rng.random() < 0.7 and self.pending[slot]:
            n = self.rng.randint(1, self.pending[slot])
        done = bool(llama.llama_memory_seq_rm(self.ours.memory, slot, length - n, -1))
        assert not done if n > self.pending[slot] else done or self.shared(slot), (n, self.pending[slot], length)
        assert self.ours.last(slot) == length - 1 - (n if done else 0)
        if done:
            self.set(slot, self.tokens[slot][:-n], self.pending[slot] - n)

    def copy(self) -> None:
        """Two sequences with one state and one tape: later each goes its own way."""
        slot, to = self.rng.sample(range(SLOTS), 2)
        if not self.unified:  # whole streams are copied, which is not ours to test
            return
        self.ours.clear(to)
        self.ours.copy(slot, to)
        self.set(to, self.tokens[slot], self.pending[slot])

    def restore(self) -> None:
        """Save a slot, do something else with it or with another one, and restore it, there or elsewhere."""
        slot, to = self.rng.randrange(SLOTS), self.rng.randrange(SLOTS)
        saved, tokens, pending = self.ours.save(slot), list(self.tokens[slot]), self.pending[slot]
        assert saved or not tokens
        if not tokens:
            return
        if self.rng.random() < 0.7:
            self.rng.choice((self.verify, self.read))()
        assert self.ours.load(to, saved)
        self.set(to, tokens, pending)

    def checkpoint(self) -> None:
        """Save the recurrent half alone, read on, and go back: the way to reuse a prefix."""
        slot = self.rng.randrange(SLOTS)
        tokens, pending = list(self.tokens[slot]), self.pending[slot]
        if not tokens:
            return
        saved = self.ours.save(slot, PARTIAL)
        text = words(self.rng, 9)
        self.ours.add_chunk(slot, text, len(tokens))
        self.compare(self.ours.must(), self.plain.chunk(slot, text))
        assert self.ours.load(slot, saved, PARTIAL)
        assert llama.llama_memory_seq_rm(self.ours.memory, slot, len(tokens), -1)
        assert self.ours.last(slot) == len(tokens) - 1
        self.set(slot, tokens, pending)

    def forget(self) -> None:
        slot = self.rng.randrange(SLOTS)
        self.ours.clear(slot)
        self.set(slot, [], 0)

    def live(self, steps: int) -> None:
        for slot in range(SLOTS - 1):
            text = words(self.rng, self.rng.randint(1, 60))
            self.ours.read(slot, text)
            self.append(slot, text, 0)
        acts = (self.verify, self.read, self.back, self.copy, self.restore, self.checkpoint, self.forget)
        for step in range(steps):
            for slot, held in enumerate(self.tokens):
                if len(held) > CONTEXT - 3 * CAPACITY:
                    self.ours.clear(slot)
                    self.set(slot, [], 0)
            (act,) = self.rng.choices(acts, (10, 2, 2, 1, 1, 1, 0.5))
            try:
                act()
            except AssertionError as error:
                raise AssertionError(f"step {step}, {act.__name__}") from error
            for slot, held in enumerate(self.tokens):
                assert self.ours.last(slot) == self.plain.last(slot) == len(held) - 1, (step, act.__name__, slot)
            self.counts[act.__name__] = self.counts.get(act.__name__, 0) + 1


def life(model: Any, seed: str, kv_unified: bool, steps: int) -> None:
    one = Life(model, kv_unified, random.Random(seed))
    one.live(steps)
    one.close()
    SEEN["worst"], SEEN["counts"] = one.worst, one.counts


# 0 -> 1 -> 3 -> 5 -> 7
#   -> 2 -> 4 -> 6 -> 8; then 5 moves from 3 to 4
RIGHT = [-1, 0, 0, 1, 2, 3, 4, 5, 6]
WRONG = [-1, 0, 0, 1, 2, 4, 4, 5, 6]


def mistakes(model: Any) -> None:
    """What a wrong parent and a wrong path do to the logits: they must be seen by far."""
    rng = random.Random("mistakes")
    ours, plain = Context(model, True, CAPACITY), Plain(model)
    past, tree = words(rng, 30), grow(RIGHT, rng)
    for one in (ours, plain):
        one.read(0, past)
    ours.add_tree(0, Tree(tree.tokens, WRONG), len(past))
    apart = distance(ours.must(), plain.paths(0, tree))
    SEEN["moved"], SEEN["not moved"] = float(apart[[5, 7]].min()), float(np.delete(apart, [5, 7]).max())
    assert ours.commit(0, [0, 1, 3])
    other = tree.text([0, 2, 4])  # another path of the same length
    plain.read(0, other)
    text = words(rng, 3)
    ours.add_chunk(0, text, len(past) + 3)
    SEEN["wrong path"] = float(distance(ours.must(), plain.chunk(0, text)).min())
    ours.close()
    plain.close()


def refused(model: Any) -> None:
    """What cannot be is refused, and nothing has changed."""
    rng = random.Random("refused")
    none = Context(model, True, 0)
    SEEN["no capacity: can_tree"] = library.llama_memory_can_tree(none.memory)
    none.read(0, [1, 2, 3])
    none.add_tree(0, grow(RIGHT, rng), 3)
    SEEN["no capacity: decoded"] = none.run() is not None
    for n in (0, 65, -1):
        SEEN[f"capacity of {n}"] = library.llama_memory_set_tree_capacity(none.memory, n)
    SEEN["capacity when in use"] = not library.llama_memory_set_tree_capacity(none.memory, 16)
    SEEN["another capacity"] = library.llama_memory_set_tree_capacity(none.memory, 32)
    none.add_tree(0, grow(RIGHT, rng), 3)
    none.must()
    none.close()

    ours = Context(model, True, 12)
    past, tree = words(rng, 10), grow(bush(rng, 12), rng)
    ours.read(0, past)
    ours.add_tree(0, grow(bush(rng, 13), rng), 10)
    SEEN["beyond the capacity"] = ours.run() is not None
    ours.add_tree(0, tree, 10, 13)
    SEEN["padded beyond the capacity"] = ours.run() is not None
    ours.add_row(0, 1, 10, PADDING)
    SEEN["padding alone"] = ours.run() is not None
    ours.add_tree(0, tree, 10, 12)
    ours.must()
    deepest = ours.last(0)
    ours.copy(0, 1)
    SEEN["open: copied"] = ours.last(1) >= 0
    ours.add_chunk(0, [1], deepest + 1)
    SEEN["open: decoded"] = ours.run() is not None
    SEEN["open: cut"] = bool(llama.llama_memory_seq_rm(ours.memory, 0, 11, -1))
    SEEN["open: cut below"] = bool(llama.llama_memory_seq_rm(ours.memory, 0, 5, -1))
    SEEN["open: saved"] = bool(ours.save(0)) or bool(ours.save(0, PARTIAL))
    SEEN["open: path with a gap"] = ours.commit(0, [0, 0])
    SEEN["open: changed"] = ours.last(0) != deepest
    assert ours.commit(0, [0])
    SEEN["committed twice"] = ours.commit(0, [0])
    saved = ours.save(0)
    other = Context(model, True, 0)
    SEEN["restored without capacity"] = other.load(0, saved)
    SEEN["left of it"] = other.last(0) >= 0
    other.close()
    ours.close()
    rolls = Context(model, True, 0, n_rs_seq=3)
    if llama.llama_n_rs_seq(rolls.context) > 0:  # qwen3next has none
        SEEN["capacity beside snapshots"] = library.llama_memory_set_tree_capacity(rolls.memory, 16)
    rolls.close()


def aborted(model: Any) -> None:
    """A pass that fails while it takes in a path leaves no sequence behind that looks sound."""
    rng = random.Random("aborted")
    ours, plain = Context(model, True, CAPACITY), Plain(model)
    past, tree = words(rng, 10), grow(RIGHT, rng)
    for slot in range(2):
        ours.read(slot, past)
        plain.read(slot, past)
        ours.add_tree(slot, tree, 10)
        ours.must()
        assert ours.commit(slot, [0, 1])
    for open_tree in (True, False):
        if open_tree:
            ours.add_tree(0, tree, 12)
        else:
            ours.add_chunk(0, [1, 2], 12)
        ours.stop = True
        SEEN["aborted: decoded"] = ours.run() is not None or SEEN.get("aborted: decoded", False)
        ours.stop = False
        SEEN["aborted: left"] = ours.last(0) >= 0 or SEEN.get("aborted: left", False)
        ours.read(0, past)
        ours.add_tree(0, tree, 10)
        SEEN["worst"] = max(SEEN.get("worst", 0.0), float(distance(ours.must(), plain.paths(0, tree)).max()))
        assert ours.commit(0, [0, 1])
    plain.read(1, tree.text([0, 1]))
    ours.add_chunk(1, [5], 12)
    SEEN["worst"] = max(SEEN["worst"], float(distance(ours.must(), plain.chunk(1, [5])).max()))
    ours.close()
    plain.close()


PARTS: dict[str, Callable[[Any], None]] = {"mistakes": mistakes, "refused": refused, "aborted": aborted}


def main() -> None:
    part, path, *rest = sys.argv[1:]
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    if part == "life":
        life(model, rest[0], rest[1] == "unified", int(rest[2]))
    else:
        PARTS[part](model)
    print(json.dumps(SEEN))


if __name__ == "__main__":
    main()
