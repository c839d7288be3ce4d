"""Two engines over one model: one is given trees, the other only ever chains, and both must say the same."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from dflash_local.native import NativeEngine, TreeRows

from .forest import Tree, chain, words
from .models import N_VOCAB

Array = npt.NDArray[np.float32]

ROWS = 256  # of one pass
F32 = {"type_k": "f32", "type_v": "f32"}


def engine(path: Path, **params: Any) -> NativeEngine:
    """An engine without a drafter on one thread."""
    common = {"n_batch": ROWS, "n_ubatch": ROWS, "n_threads": 1, "n_threads_batch": 1, "warmup": False, "lookup": False}
    return NativeEngine({"model": str(path), **common, **params})


def feed(native: NativeEngine, slot: int, tokens: list[int], width: int = 64) -> None:
    """Append tokens to a slot, `width` rows a pass."""
    for at in range(0, len(tokens), width):
        part = tokens[at : at + width]
        native.tree_pass([TreeRows(slot, part, chain(part).parents, range(len(part)), want_logits=False)], N_VOCAB)


def greedy(native: NativeEngine, slot: int, prompt: list[int], n: int, cache_prompt: bool = True) -> list[int]:
    """The first n tokens of plain decoding after a prompt."""
    sampling = '{"temperature": 0, "ignore_eos": true}'
    params = {"tokens": prompt, "n_predict": n, "sampling": sampling, "budget": 1, "cache_prompt": cache_prompt}
    native.submit(slot, native.prepare(params))
    answer: list[int] = []
    while updates := native.step():
        answer += [token for update in updates for token in update.tokens]
    return answer


def look(native: NativeEngine, slot: int, tokens: list[int]) -> Array:
    """Logits [n, N_VOCAB] of a chain on top of what a slot holds, which stays as it is."""
    (logits,) = native.tree_pass([TreeRows(slot, tokens, chain(tokens).parents)], N_VOCAB)
    assert logits is not None
    return logits


def distance(a: Array, b: Array) -> Array:
    """Per row of logits the largest difference as a share of the row's spread, from its least to its greatest logit."""
    return np.abs(a - b).max(-1) / np.ptp(b, -1)


class Twin:
    """The two engines and the tokens that each slot of both holds."""

    def __init__(self, path: Path, *, n_slots: int, n_ctx: int = 512, kv_unified: bool = True, **params: Any) -> None:
        params = {"n_slots": n_slots, "n_ctx": n_ctx * n_slots, **params}
        self.trees = engine(path, kv_unified=kv_unified, **params)
        self.chains = engine(path, kv_unified=True, **params)
        self.tokens: list[list[int]] = [[] for _ in range(n_slots)]

    def __enter__(self) -> Twin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.trees.destroy()
        self.chains.destroy()

    def prompt(self, slot: int, tokens: list[int]) -> None:
        feed(self.trees, slot, tokens)
        feed(self.chains, slot, tokens)
        self.tokens[slot] += tokens

    def verify(self, trees: Mapping[int, Tree], paths: Mapping[int, list[int]] | None = None) -> dict[int, Array]:
        """One pass over trees by slot, then the commit of their paths (none: forget all): logits of every row."""
        paths = paths or {}
        rows = [TreeRows(slot, tree.tokens, tree.parents, paths.get(slot, [])) for slot, tree in trees.items()]
        logits = self.trees.tree_pass(rows, N_VOCAB)
        return {slot: found for slot, found in zip(trees, logits, strict=True) if found is not None}

    def expected(self, slot: int, tree: Tree) -> Array:
        """Logits of every row of a tree, each path fed alone to the other engine."""
        out = np.full((len(tree.tokens), N_VOCAB), np.nan, np.float32)
        for leaf in tree.leaves():
            path = tree.path(leaf)
            out[path] = look(self.chains, slot, tree.text(path))
        return out

    def accept(self, slot: int, tokens: list[int]) -> None:
        """Tell the other engine which path was committed."""
        if tokens:
            feed(self.chains, slot, tokens, len(tokens))
        self.tokens[slot] += tokens

    def compare(self, trees: Mapping[int, Tree], paths: Mapping[int, list[int]] | None = None) -> float:
        """The largest distance of any row of a step from its path fed alone."""
        expected = {slot: self.expected(slot, tree) for slot, tree in trees.items()}
        got = self.verify(trees, paths)
        for slot, path in (paths or {}).items():
            self.accept(slot, trees[slot].text(path))
        return max(float(distance(got[slot], expected[slot]).max()) for slot in trees)

    def clear(self, slot: int) -> None:
        self.trees.slot_clear(slot)
        self.chains.slot_clear(slot)
        self.tokens[slot] = []

    def refresh(self, slot: int) -> None:
        """Make the other engine read a slot's tokens anew."""
        self.chains.slot_clear(slot)
        feed(self.chains, slot, self.tokens[slot])

    def noise(self, slot: int, width: int, rng: random.Random) -> float:
        """What a pass of `width` rows changes by itself: a random chain on top of a slot in one pass, against row by
        row."""
        tokens = words(rng, width)
        wide = look(self.chains, slot, tokens)
        narrow = []
        for token in tokens:
            narrow.append(look(self.chains, slot, [token])[0])
            feed(self.chains, slot, [token])
        self.refresh(slot)
        return float(distance(wide, np.array(narrow)).max())
