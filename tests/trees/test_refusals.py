"""Trees that cannot be verified, and targets that cannot verify any, are refused; nothing else changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dflash_local.errors import DFlashError, RequestError
from dflash_local.native import TreeRows

from . import ledger, models
from .forest import chain, grow, star, words
from .test_target_rows import CACHES, EXACT
from .twin import ROWS, Twin, greedy

Model = Callable[[str], Path]

CONTEXT = 96


class Bad(NamedTuple):
    trees: list[TreeRows]
    says: str  # a pattern of the message


def rows(n: int) -> list[int]:
    return list(range(n))


BAD: dict[str, Bad] = {
    "no nodes": Bad([TreeRows(0, [], [])], "n_nodes"),
    "more than 64 nodes with a branch": Bad([TreeRows(1, rows(65), [*range(-1, 63), 62])], "64"),
    "a root with a parent": Bad([TreeRows(0, rows(2), [0, 0])], "parent"),
    "its own parent": Bad([TreeRows(0, rows(3), [-1, 0, 2])], "parent"),
    "a parent to come": Bad([TreeRows(0, rows(3), [-1, 2, 0])], "parent"),
    "a second root": Bad([TreeRows(0, rows(3), [-1, 0, -1])], "parent"),
    "a parent below -1": Bad([TreeRows(0, rows(3), [-1, 0, -7])], "parent"),
    "a parent beyond the end": Bad([TreeRows(0, rows(3), [-1, 0, 1 << 30])], "parent"),
    "a negative token": Bad([TreeRows(0, [1, -1], [-1, 0])], "token"),
    "a token beyond the vocabulary": Bad([TreeRows(0, [1, models.N_VOCAB], [-1, 0])], "token"),
    "a path that is longer than the tree": Bad([TreeRows(0, rows(2), [-1, 0], [0, 1, 1])], "path"),
    "a path that begins below the anchor": Bad([TreeRows(0, rows(3), [-1, 0, 1], [1, 2])], "path"),
    "a path with a gap": Bad([TreeRows(0, rows(3), [-1, 0, 1], [0, 2])], "path"),
    "a path over siblings": Bad([TreeRows(0, rows(3), [-1, 0, 0], [0, 1, 2])], "path"),
    "a path beyond the tree": Bad([TreeRows(0, rows(2), [-1, 0], [0, 2])], "path"),
    "a path below 0": Bad([TreeRows(0, rows(2), [-1, 0], [0, -1])], "path"),
    "a slot below 0": Bad([TreeRows(-1, [1], [-1])], "slot"),
    "a slot beyond the last": Bad([TreeRows(3, [1], [-1])], "slot"),
    "two trees for a slot": Bad([TreeRows(1, [1], [-1]), TreeRows(0, [1], [-1]), TreeRows(1, [2], [-1])], "slot"),
    "a sound tree and a bad one": Bad([TreeRows(1, [1], [-1], [0]), TreeRows(0, [1, 1], [-1, 1])], "parent"),
    "more than the context holds": Bad([TreeRows(0, rows(40), [*range(-1, 39)])], "context|fit|n_ctx"),
    "more rows than a pass": Bad([TreeRows(0, [1] * (ROWS + 1), list(range(-1, ROWS)))], "context|fit|pass|rows"),
    "no trees": Bad([], "tree"),
}


@pytest.fixture(scope="module")
def twin(model: Model) -> Iterator[Twin]:
    with Twin(model("qwen3"), n_slots=3, n_ctx=CONTEXT, **CACHES["exact"]) as made:
        made.prompt(0, words(random.Random(0), CONTEXT - 39))
        yield made


@pytest.mark.parametrize("case", BAD)
def test_bad_trees(twin: Twin, case: str) -> None:
    before = twin.trees.cells()
    with pytest.raises(RequestError, match=BAD[case].says) as error:
        twin.trees.tree_pass(BAD[case].trees, models.N_VOCAB)
    assert "\n" not in str(error.value)
    assert twin.trees.cells() == before


def test_good_trees_after_bad_ones(twin: Twin) -> None:
    """Runs last: the refused trees left nothing behind. The largest that fits, does."""
    tree = grow(star(random.Random(1), 39), random.Random(1))
    assert twin.compare({0: tree, 1: chain([1, 2, 3])}) < EXACT


def test_a_running_slot(twin: Twin) -> None:
    params = {"tokens": [1, 2, 3], "n_predict": 20, "sampling": '{"ignore_eos": true}', "cache_prompt": False}
    twin.trees.submit(2, twin.trees.prepare(params))
    twin.trees.step()
    with pytest.raises(DFlashError, match="slot 2 is running"):
        twin.trees.tree_pass([TreeRows(2, [1], [-1])], models.N_VOCAB)
    twin.trees.cancel(2)
    twin.trees.slot_clear(2)
    twin.trees.tree_pass([TreeRows(2, [1], [-1])], models.N_VOCAB)


@pytest.mark.parametrize("name", models.TREES)
def test_targets_that_verify_trees_say_so(model: Model, name: str) -> None:
    with Twin(model(name), n_slots=1) as twin:
        assert not twin.trees.info().get("no_tree")


@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("name", models.CHAINS)
def test_targets_that_refuse_trees(model: Model, name: str, kv_unified: bool) -> None:
    """The reason names the architecture; chains pass, and nothing of the refused tree stays."""
    rng = random.Random(name)
    with Twin(model(name), n_slots=2, kv_unified=kv_unified, **CACHES["flash"]) as twin:
        reason = twin.trees.info()["no_tree"]
        assert name in reason
        past, more = words(rng, 30), words(rng, 5)
        twin.prompt(0, past)
        before = twin.trees.cells()
        for tree in (grow([-1, 0, 0], rng), grow(star(rng, 9), rng)):
            with pytest.raises(RequestError) as error:
                twin.trees.tree_pass([TreeRows(0, tree.tokens, tree.parents, [0])], models.N_VOCAB)
            assert reason in str(error.value)
        assert twin.trees.cells() == before
        (logits,) = twin.trees.tree_pass([TreeRows(0, more, chain(more).parents, list(range(5)))], models.N_VOCAB)
        (expected,) = twin.chains.tree_pass([TreeRows(0, more, chain(more).parents, list(range(5)))], models.N_VOCAB)
        assert logits is not None and expected is not None
        assert (logits == expected).all()


@pytest.mark.parametrize("name", ["lfm2", "qwen35"])
def test_a_state_is_not_rolled_back(model: Model, name: str) -> None:
    """Of a chain that a recurrent state has taken in, no part can be forgotten: refused before it is too late."""
    rng = random.Random(name)
    with Twin(model(name), n_slots=1, **CACHES["exact"]) as twin:
        past = words(rng, 30)
        twin.prompt(0, past)
        for path in ([], [0], [0, 1]):
            with pytest.raises(RequestError, match="roll"):
                twin.trees.tree_pass([TreeRows(0, [1, 2, 3], [-1, 0, 1], path)], models.N_VOCAB)
        greedy(twin.trees, 0, [*past, 1], 1)
        assert twin.trees.slot_stats(0).n_cached == 30


def test_a_request_after_trees(model: Model) -> None:
    """A slot that was given trees answers as a fresh one."""
    rng = random.Random(0)
    past = words(rng, 40)
    with Twin(model("gpt-oss"), n_slots=2, **CACHES["exact"]) as twin:
        twin.prompt(0, past)
        tree = grow(star(rng, 20), rng)
        twin.verify({0: tree}, {0: tree.path(7)})
        ledger.check(twin.trees.cells(), [42, 0], models.WINDOW)
        prompt = past + tree.text(tree.path(7)) + words(rng, 3)
        answers = []
        for native, slot in ((twin.trees, 0), (twin.chains, 1)):
            answers.append(greedy(native, slot, prompt, 12))
        assert answers[0] == answers[1] and len(answers[0]) == 12
