"""The logits of every node of a tree are those of feeding its path alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.native import MAX_NODES, TreeRows
from tests.lossless import tiny

from . import models
from .forest import SHAPES, Tree, bush, chain, grow, random_tree, vine, words
from .twin import F32, Twin, distance, engine, feed

Model = Callable[[str], Path]

EXACT = 1e-4  # of a row's spread: f32 weights and cache without flash attention
# Where a cache or flash attention rounds, a pass of many rows may differ from passes of one row by itself
# (`Twin.noise`): trees may differ by twice that, measured in passes of WIDTHS rows (ggml's own flash attention changes
# its sums at 64). Row-invariant kernels leave next to no noise; slots that share a cache still sum over cells in
# another order, and a cache of 8 or 16 bits makes ROUNDED of that.
NOISE, WIDTHS = 2.0, (63, 64)
ROUNDED = 1e-3
MOST_NOISE = 5e-3  # NOISE times more than this could hide an error

CACHES: dict[str, dict[str, Any]] = {
    "exact": {"flash_attn": 0, **F32},
    "flash": {"flash_attn": 1, **F32},
    "f16": {"flash_attn": 1, "type_k": "f16", "type_v": "f16"},
    "q8_0": {"flash_attn": 1, "type_k": "q8_0", "type_v": "q8_0"},
    "f16-plain": {"flash_attn": 0, "type_k": "f16", "type_v": "f16"},
    "q8_0-k": {"flash_attn": 0, "type_k": "q8_0", "type_v": "f16"},
}


def tolerance(twin: Twin, cache: str, rng: random.Random) -> float:
    """What a row may differ by, as a share of its spread."""
    if cache == "exact":
        return EXACT
    noise = max(twin.noise(slot, width, rng) for slot in range(len(twin.tokens)) for width in WIDTHS)
    assert noise < MOST_NOISE
    return max(ROUNDED, NOISE * noise)


def file(model: Model, name: str, cache: str) -> Path:
    return model(f"{name}-all" if cache != "exact" and f"{name}-all" in models.MIXTURES else name)


def plant(twin: Twin, rng: random.Random) -> None:
    """Committed pasts beyond the window, inside it, and of one token."""
    for slot, length in enumerate((models.WINDOW * 3 + 1, models.WINDOW - 4, 1)):
        twin.prompt(slot, words(rng, length))


def check_steps(path: Path, cache: str, kv_unified: bool, seed: str, steps: int) -> None:
    """Steps of three slots, each with a tree of its own, of which a random path is kept."""
    rng = random.Random(seed)
    with Twin(path, n_slots=3, kv_unified=kv_unified, **CACHES[cache]) as twin:
        plant(twin, rng)
        limit = tolerance(twin, cache, rng)
        for step in range(steps):
            slots = rng.sample(range(3), rng.randint(1, 3))
            trees = {slot: random_tree(rng, MAX_NODES // len(slots)) for slot in slots}
            if step == 0:
                trees = {0: grow(rng.choice(SHAPES[2:])(rng, MAX_NODES), rng)}
            elif step == 1:  # with branches, of one row, and a chain
                trees = {0: grow(bush(rng, 40), rng), 1: chain(words(rng, 1)), 2: chain(words(rng, 20))}
            paths = {
                slot: tree.path(rng.randrange(len(tree.tokens))) for slot, tree in trees.items() if rng.random() < 0.8
            }
            assert twin.compare(trees, paths) < limit, f"step {step}"


@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("cache", ["exact", "flash"])
@pytest.mark.parametrize("name", models.TREES)
def test_nodes_equal_their_paths(model: Model, name: str, cache: str, kv_unified: bool) -> None:
    check_steps(file(model, name, cache), cache, kv_unified, f"{name} {cache} {kv_unified}", 3)


@pytest.mark.slow
@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("cache", ["exact", "flash"])
@pytest.mark.parametrize("name", models.TREES)
def test_many_nodes_equal_their_paths(model: Model, name: str, cache: str, kv_unified: bool) -> None:
    for seed in range(5):
        check_steps(file(model, name, cache), cache, kv_unified, f"many {name} {cache} {kv_unified} {seed}", 8)


@pytest.mark.parametrize("cache", ["f16", "f16-plain", "q8_0", "q8_0-k"])
@pytest.mark.parametrize("name", models.WIDE)
def test_quantized_caches(model: Model, name: str, cache: str) -> None:
    check_steps(model(name), cache, cache != "q8_0", f"{name} {cache}", 3)


# 0 -> 1 -> 3 -> 5 -> 7
#   -> 2 -> 4 -> 6 -> 8; then 5 moves from 3 to 4
RIGHT = [-1, 0, 0, 1, 2, 3, 4, 5, 6]
WRONG = [-1, 0, 0, 1, 2, 4, 4, 5, 6]


@pytest.mark.parametrize("cache", ["exact", "flash"])
@pytest.mark.parametrize("name", models.TREES)
def test_a_wrong_parent_is_seen(model: Model, name: str, cache: str) -> None:
    """One row under a neighbour of its parent: exactly it and its descendants differ, by far."""
    rng = random.Random(name)
    with Twin(file(model, name, cache), n_slots=3, **CACHES[cache]) as twin:
        plant(twin, rng)
        limit = tolerance(twin, cache, rng)
        for slot in range(3):
            tree = grow(RIGHT, rng)
            apart = distance(twin.verify({slot: Tree(tree.tokens, WRONG)})[slot], twin.expected(slot, tree))
            assert apart[[5, 7]].min() > max(3 * limit, 100 * EXACT)
            assert np.delete(apart, [5, 7]).max() < limit


def test_against_numpy(tmp_path: Path) -> None:
    """The same against a forward pass that shares no code with llama.cpp: neither engine can be wrong in the same
    way."""
    tensors = tiny.target_tensors()
    native = engine(tiny.write_target(tmp_path / "target.gguf", tensors), n_ctx=256, n_slots=1, **CACHES["exact"])
    rng = random.Random(0)
    past = [rng.randrange(tiny.MASK) for _ in range(20)]
    feed(native, 0, past)
    tree = grow(vine(rng, 40), rng)
    tree = Tree([token % tiny.MASK for token in tree.tokens], tree.parents)
    (logits,) = native.tree_pass([TreeRows(0, tree.tokens, tree.parents)], len(tiny.VOCAB))
    native.destroy()
    assert logits is not None
    for row, got in enumerate(logits):
        text = np.array([past + tree.text(tree.path(row))])
        assert distance(got, tiny.target_logits(tensors, text)[0, -1]) < EXACT
