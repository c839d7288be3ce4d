"""After any number of trees the cells are those of a chain of the accepted tokens; nothing leaks."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local import Engine
from dflash_local.native import MAX_NODES
from tests.native_process import run_native

from . import ledger, models
from .forest import random_tree, words
from .test_target_rows import CACHES, file, tolerance
from .twin import Twin

Model = Callable[[str], Path]

SLOTS, CONTEXT = 3, 400
# Rows of a pass: so few that the caches of sliding windows, 256 cells, are used over and over.
ROWS = 64


def in_order(cells: ledger.Cells, name: str) -> bool:
    """Whether every slot's cells are in the order of its positions, also in a cache that slots share; the smaller one
    of sliding windows is not asked."""
    caches = cells["caches"][: 1 if window(name) else None]
    streams = [sorted(stream["cells"]) for cache in caches for stream in cache["streams"]]
    held = [[pos for _, pos, slots in stream if slot in slots] for stream in streams for slot in range(SLOTS)]
    return all(found == sorted(found) for found in held)


def window(name: str) -> int | None:
    return models.WINDOW if name in ("gemma4", "gpt-oss") else None


def wander(twin: Twin, rng: random.Random, trees: int, look: Callable[[], None]) -> None:
    """Verify `trees` random trees and keep a random path of most; slots that are full, and a few others, are
    cleared."""
    while trees > 0:
        slots = rng.sample(range(SLOTS), rng.randint(1, SLOTS))
        for slot in slots:
            if len(twin.tokens[slot]) > CONTEXT - MAX_NODES or rng.random() < 0.003:
                twin.clear(slot)
        batch = {slot: random_tree(rng, ROWS // len(slots)) for slot in slots}
        paths = {slot: tree.path(rng.randrange(len(tree.tokens))) for slot, tree in batch.items() if rng.random() < 0.9}
        paths = {slot: path[: rng.randint(1, 12)] for slot, path in paths.items()}
        twin.verify(batch, paths)
        for slot, path in paths.items():
            twin.accept(slot, batch[slot].text(path))
        look()
        trees -= len(slots)


def check_wandering(path: Path, name: str, kv_unified: bool, cache: str, trees: int, seed: str) -> None:
    rng = random.Random(seed)
    size = {"n_slots": SLOTS, "n_ctx": CONTEXT, "n_batch": ROWS, "n_ubatch": ROWS}
    with Twin(path, kv_unified=kv_unified, **size, **CACHES[cache]) as twin:

        def lengths() -> list[int]:
            return [len(tokens) for tokens in twin.tokens]

        def check_same() -> None:
            cells = [ledger.seen(native.cells(), lengths(), window(name)) for native in (twin.trees, twin.chains)]
            assert cells[0] == cells[1]

        lost = 0  # positions that made room for others, in the cache of a sliding window

        def look() -> None:
            nonlocal lost
            cells = twin.trees.cells()
            ledger.check(cells, lengths(), window(name))
            assert in_order(cells, name)
            assert kv_unified or ledger.in_order(cells)
            lost += any(found[0] > 0 for held in ledger.positions(cells) for found in held.values())

        for slot in range(SLOTS):
            twin.prompt(slot, words(rng, rng.randint(200, 256)))
        wander(twin, rng, trees, look)
        assert bool(lost) == bool(window(name))
        check_same()
        for slot in range(SLOTS):  # and as a context that has seen nothing but these chains
            twin.refresh(slot)
        check_same()
        limit = tolerance(twin, cache, rng)
        for slot in range(SLOTS):
            assert twin.compare({slot: random_tree(rng)}) < limit
        for slot in range(SLOTS):
            twin.clear(slot)
        assert not any(ledger.positions(twin.trees.cells()))


@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("name", ["qwen3", "gemma4"])
def test_trees_leave_a_chain(model: Model, name: str, kv_unified: bool) -> None:
    check_wandering(model(name), name, kv_unified, "exact", 200, f"{name} {kv_unified}")


@pytest.mark.slow
@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("cache", ["exact", "flash"])
@pytest.mark.parametrize("name", models.TREES)
def test_a_thousand_trees_leave_a_chain(model: Model, name: str, cache: str, kv_unified: bool) -> None:
    check_wandering(file(model, name, cache), name, kv_unified, cache, 1000, f"thousand {name} {cache} {kv_unified}")


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss"])
def test_sequences_share_a_cache(model: Model, repo: Path, name: str) -> None:
    """Grown, cut, shared, saved and restored, in a cache that is full again and again: the same bits as alone. Not so
    with upstream's."""
    with Engine(model(name), warmup=False, swa_full=True) as engine:
        if why := engine.info["not_bit_exact"]:
            pytest.skip(why)

    def look(places: str, attention: str) -> dict[str, Any]:
        run = run_native(repo, "tests.trees.order", str(model(name)), places, attention)
        assert run.returncode == 0, run.stderr[-2000:]
        return dict(json.loads(run.stdout))

    for attention in ("flash", "transposed"):
        ours = look("ordered", attention)
        assert min(ours["done"].values()) >= 5 and ours["packed"] >= 8
        assert ours["differ"] == 0 and ours["refused"] == ours["full"]
    upstream = look("any", "flash")
    assert upstream["differ"] > 0 and upstream["packed"] == 0


def unused(stream: dict[str, Any]) -> int:
    return max(cell for cell, _, _ in stream["cells"]) + 1


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a row beyond the end": lambda stream: stream["cells"].append([unused(stream), 50, [0]]),
    "a sibling of the last row": lambda stream: stream["cells"].append([unused(stream), 49, [0]]),
    "a row of a slot that does not exist": lambda stream: stream["cells"].append([unused(stream), 0, [2]]),
    "a hole in the window": lambda stream: stream["cells"].remove(
        next(cell for cell in stream["cells"] if cell[1] == 48)
    ),
    "a row in two slots": lambda stream: stream["cells"][-1][2].append(1 - stream["cells"][-1][2][0]),
    "a cell in use twice": lambda stream: stream["cells"].append(stream["cells"][0]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_leaks_are_seen(model: Model, damage: str) -> None:
    """The ledger's own eyes, in either of iSWA's caches."""
    rng = random.Random(0)
    with Twin(model("gemma4"), n_slots=2) as twin:
        twin.prompt(0, words(rng, 50))
        twin.prompt(1, words(rng, 7))
        sound = twin.trees.cells()
    ledger.check(sound, [50, 7], models.WINDOW)
    for cache in range(2):
        damaged = copy.deepcopy(sound)
        (stream,) = damaged["caches"][cache]["streams"]
        DAMAGES[damage](stream)
        stream["used"] = len(stream["cells"])
        with pytest.raises((AssertionError, ValueError)):
            ledger.check(damaged, [50, 7], models.WINDOW)
