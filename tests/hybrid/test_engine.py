"""The engine over hybrid targets: the same claims as for attention (tests/trees), with chains that roll back as
trees."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local.native import NativeEngine
from tests.trees.forest import chain, random_tree, words
from tests.trees.test_cells import check_wandering
from tests.trees.test_target_rows import CACHES, check_steps
from tests.trees.twin import Twin, greedy

from . import models

Hybrid = Callable[[str], Path]


@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("name", models.HYBRIDS)
def test_nodes_equal_their_paths(hybrid: Hybrid, name: str, kv_unified: bool) -> None:
    check_steps(hybrid(name), "exact", kv_unified, f"{name} {kv_unified}", 3)


@pytest.mark.parametrize("name", models.HYBRIDS)
def test_trees_leave_a_chain(hybrid: Hybrid, name: str) -> None:
    check_wandering(hybrid(name), name, True, "exact", 60, name)


@pytest.mark.slow
@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("name", models.HYBRIDS)
def test_a_thousand_trees_leave_a_chain(hybrid: Hybrid, name: str, kv_unified: bool) -> None:
    check_wandering(hybrid(name), name, kv_unified, "exact", 1000, f"thousand {name} {kv_unified}")


@pytest.mark.parametrize("name", models.HYBRIDS)
def test_a_request_after_trees(hybrid: Hybrid, name: str) -> None:
    """A slot whose state waits for its path reuses all of it, and answers as a fresh one."""
    rng = random.Random(name)
    past = words(rng, 40)
    with Twin(hybrid(name), n_slots=2, **CACHES["exact"]) as twin:
        assert not twin.trees.info()["no_tree"]
        twin.prompt(0, past)
        tree = random_tree(rng, 20)
        path = tree.path(len(tree.tokens) - 1)
        twin.verify({0: tree}, {0: path})
        twin.verify({1: chain([1, 2, 3])}, {1: []})
        prompt = past + tree.text(path) + words(rng, 3)
        answers = []
        for native, slot in ((twin.trees, 0), (twin.chains, 1)):
            answers.append(greedy(native, slot, prompt, 12, cache_prompt=slot == 0))
            assert native.slot_stats(slot).n_cached == (len(prompt) - 3 if slot == 0 else 0)
        assert answers[0] == answers[1] and len(answers[0]) == 12


@pytest.mark.parametrize("name", models.HYBRIDS)
def test_a_prefix_is_reused(hybrid: Hybrid, name: str) -> None:
    """A prompt that leaves the last one near its end is read from a saved state on, one that leaves it earlier from its
    start."""
    rng = random.Random(name)
    past = words(rng, 200)
    with Twin(hybrid(name), n_slots=1, **CACHES["exact"]) as twin:

        def answer(native: NativeEngine, prompt: list[int], cache: bool) -> tuple[list[int], int]:
            return greedy(native, 0, prompt, 8, cache), native.slot_stats(0).n_cached

        answer(twin.trees, past, True)
        for kept, cached in ((200, 184), (190, 184), (100, 0)):
            prompt = past[:kept] + words(rng, 20)
            got, n = answer(twin.trees, prompt, True)
            assert n == cached
            assert got == answer(twin.chains, prompt, False)[0]
