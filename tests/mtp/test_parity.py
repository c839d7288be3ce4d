"""What is drafted is what llama.cpp itself would draft (common/speculative.cpp, draft-mtp), token by token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_local.native import VerifiedTree
from tests.parity.f32 import engine_f32

from .conftest import Reference
from .models import NAMES
from .probe import N_ANSWER, PROMPT

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


@pytest.mark.parametrize("name", NAMES)
def test_drafts_are_those_of_upstream(
    model: Callable[[str], Path], references: dict[str, Reference], name: str
) -> None:
    reference = references[name]
    at, seen = len(PROMPT), 0
    with engine_f32(model(name), None, n_ctx=256, draft_kind="mtp") as engine:
        for chunk in engine.stream(
            PROMPT, max_tokens=N_ANSWER, temperature=0, ignore_eos=True, budget=16, return_drafts=True
        ):
            tree = chunk.step.tree if chunk.step else None
            if tree and tree.tokens:
                assert tree.tokens[0] == reference.text[at]
                seen += check_tree(tree, reference.drafts[at - len(PROMPT)])
                at += len(tree.path)
    assert seen >= 10
