"""The trained hybrid pocket pair: drafted text is plain text, whatever the trees, and however many slots write beside
it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dflash_local.demo
from dflash_local.engine import Engine
from dflash_local.native import NativeEngine, TreeRows, quantize
from dflash_local.sampling import SamplingParams
from tests.trees.forest import chain, random_tree
from tests.trees.twin import Array
from tests.trees.twin import engine as open_engine

FOLDER = Path(dflash_local.demo.__file__).parent
ASKED = (
    "Count from 33 in steps of 2, 7 numbers.",
    "Write a Python function that filters limits above 37.",
    "What is 344 + 124?",
    "Count from 5 in steps of 3, 9 numbers.",
)


def answers(temperature: float, **params: Any) -> tuple[list[list[int]], float]:
    """Tokens of each answer, and tokens per pass over the slots."""
    n_slots = params.get("n_slots", 1)
    sampling = SamplingParams(temperature=temperature, seed=7)
    with Engine(
        FOLDER / "pocket-hybrid-target.gguf",
        FOLDER / "pocket-hybrid-dflash.gguf",
        n_ctx=512 * n_slots,
        n_threads=1,
        cost_cache=False,
        **params,
    ) as engine:
        prompts = [engine.apply_chat({"messages": [{"role": "user", "content": text}]}) for text in ASKED]
        running = [engine.submit_chat(prompt, sampling, max_tokens=48) for prompt in prompts]
        tokens = [list(generation.result().tokens) for generation in running]
        return tokens, sum(map(len, tokens)) / engine.stats()["passes"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafted_text_is_plain_text(temperature: float) -> None:
    plain, _ = answers(temperature, budget=1)
    for params in ({"budget": 12}, {"budget": 12, "n_slots": 3}, {"budget": "auto", "n_slots": 2, "kv_unified": False}):
        drafted, rate = answers(temperature, **params)
        assert drafted == plain
        assert rate > 2 or params["budget"] == "auto"


def feed(native: NativeEngine, tokens: list[int], width: int, n_vocab: int) -> Array:
    """Logits of a chain that slot 0 takes in, `width` rows a pass."""
    found = []
    for at in range(0, len(tokens), width):
        part = tokens[at : at + width]
        (logits,) = native.tree_pass([TreeRows(0, part, chain(part).parents, range(len(part)))], n_vocab)
        assert logits is not None
        found.append(logits)
    return np.concatenate(found)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_nodes_are_plain_tokens_bit_for_bit(tmp_path: Path, kind: str) -> None:
    """Tree after tree: a node's logits are the bits of its path decoded row by row, on CPUs whose kernels promise
    that."""
    target = FOLDER / "pocket-hybrid-target.gguf"
    if kind != "f16":
        target = tmp_path / f"{kind}.gguf"
        quantize(FOLDER / "pocket-hybrid-target.gguf", target, kind)
    rng = random.Random(kind)
    trees, plain = (open_engine(target, n_slots=1, n_ctx=1024, kv_unified=False, flash_attn=1) for _ in range(2))
    if why := trees.info()["not_bit_exact"]:
        pytest.skip(why)
    n_vocab = trees.info()["target"]["n_vocab"]
    past = [rng.randrange(n_vocab) for _ in range(70)]
    feed(trees, past, 64, n_vocab)
    kept: list[int] = []
    for _ in range(6):
        tree = random_tree(rng, 24)
        path = tree.path(rng.randrange(len(tree.tokens)))
        (logits,) = trees.tree_pass([TreeRows(0, tree.tokens, tree.parents, path)], n_vocab)
        assert logits is not None
        for leaf in tree.leaves():
            rows = tree.path(leaf)
            plain.slot_clear(0)
            feed(plain, past, 64, n_vocab)
            found = feed(plain, kept + tree.text(rows), 1, n_vocab)
            assert (found[len(kept) :] == logits[rows]).all()
        kept += tree.text(path)
    trees.destroy()
    plain.destroy()
