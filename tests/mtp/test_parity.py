"""What is drafted is what llama.cpp itself would draft (common/speculative.cpp, draft-mtp), token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_local.native import VerifiedTree
from tests.parity.f32 import engine_f32

from .assistant import path_of
from .conftest import Reference
from .models import ASSISTED, NAMES
from .probe import N_ANSWER, PROMPT

Model = Callable[[str], Path]

TOLERANCE = 1e-5


def check_tree(tree: VerifiedTree, drafts: list[dict[int, float]]) -> int:
    """All nodes are candidates of their position, as likely as in `drafts`; returns how many of them were looked at."""
    depths, seen = [0], 0
    for token, parent, prob in zip(tree.tokens[1:], tree.parents[1:], tree.probs[1:], strict=True):
        depths.append(depths[parent] + 1)
        if depths[-1] <= len(drafts):
            assert drafts[depths[-1] - 1][token] == pytest.approx(prob, abs=TOLERANCE)
            seen += 1
    return seen


def trees(path: Path, reference: Reference, **parameters: Any) -> Iterator[tuple[VerifiedTree, list[dict[int, float]]]]:
    """The verified trees of the reference's text, and what is drafted there."""
    at = len(PROMPT)
    with engine_f32(path, path_of(path), n_ctx=256, draft_kind="mtp", **parameters) as engine:
        for chunk in engine.stream(
            PROMPT, max_tokens=N_ANSWER, temperature=0, ignore_eos=True, budget=16, return_drafts=True
        ):
            tree = chunk.step.tree if chunk.step else None
            if tree and tree.tokens:
                assert tree.tokens[0] == reference.text[at]
                yield tree, reference.drafts[at - len(PROMPT)]
                at += len(tree.path)


@pytest.mark.parametrize("name", [*NAMES, ASSISTED])
def test_drafts_are_those_of_upstream(model: Model, references: dict[str, Reference], name: str) -> None:
    assert sum(check_tree(*found) for found in trees(model(name), references[name])) >= 10


@pytest.mark.parametrize("name", ["deepseek2-1", "glm4moe-1", "hy_v3-1", "qwen35-1"])
def test_a_part_of_the_vocabulary(model: Model, references: dict[str, Reference], name: str) -> None:
    """Of the tokens that may be proposed, each is as likely beside the others as among all tokens."""
    seen = 0
    for tree, (first, *_) in trees(model(name), references[name], draft_vocab=64):
        below = [i for i, parent in enumerate(tree.parents) if parent == 0 and tree.tokens[i] in first]
        for i in below[1:]:
            want = first[tree.tokens[i]] / first[tree.tokens[below[0]]]
            assert tree.probs[i] / tree.probs[below[0]] == pytest.approx(want, abs=TOLERANCE)
            seen += 1
    assert seen >= 10
