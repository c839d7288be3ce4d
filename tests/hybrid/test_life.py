"""Hybrid targets at llama.cpp's own interface: whatever befalls a sequence, its logits are those of its tokens fed
alone.

The parts run in `life.py`, in processes of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.native_process import run_native
from tests.trees.test_target_rows import EXACT

from . import models

Hybrid = Callable[[str], Path]


def run(repo: Path, part: str, model: Path, *args: str) -> dict[str, Any]:
    done = run_native(repo, "tests.hybrid.life", part, str(model), *args)
    assert done.returncode == 0, done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize("streams", ["unified", "streams"])
@pytest.mark.parametrize("name", models.HYBRIDS)
def test_nodes_equal_their_paths(hybrid: Hybrid, repo: Path, name: str, streams: str) -> None:
    """Steps of three slots: trees of which a random path is kept, chunks, ways back, copies, saved states,
    checkpoints."""
    assert run(repo, "life", hybrid(name), f"short {name}", streams, "60")["worst"] < EXACT


def test_backends_without_kernels(hybrid: Hybrid, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with ggml's own ops instead of ours."""
    monkeypatch.setenv("DFLASH_GDN_COMPOSED", "1")
    worst = run(repo, "life", hybrid("qwen35"), "composed", "unified", "60")["worst"]
    assert worst < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["unified", "streams"])
@pytest.mark.parametrize("name", models.HYBRIDS)
def test_five_hundred_steps(hybrid: Hybrid, repo: Path, name: str, streams: str) -> None:
    seen = run(repo, "life", hybrid(name), f"long {name}", streams, "500")
    assert seen["worst"] < EXACT
    assert len(seen["counts"]) == 7, seen["counts"]


@pytest.mark.parametrize("name", models.HYBRIDS)
def test_mistakes_are_seen(hybrid: Hybrid, repo: Path, name: str) -> None:
    seen = run(repo, "mistakes", hybrid(name))
    assert seen["not moved"] < EXACT
    assert seen["moved"] > 100 * EXACT and seen["wrong path"] > 100 * EXACT


@pytest.mark.parametrize("name", models.HYBRIDS)
def test_refusals(hybrid: Hybrid, repo: Path, name: str) -> None:
    """What cannot be is refused, and nothing has changed."""
    seen = run(repo, "refused", hybrid(name))
    assert not {what for what, true in seen.items() if true}, seen


@pytest.mark.parametrize("name", models.HYBRIDS)
def test_a_failed_pass(hybrid: Hybrid, repo: Path, name: str) -> None:
    """It may have written half a state: nothing is left of its sequences, and the others are sound."""
    seen = run(repo, "aborted", hybrid(name))
    assert not seen["aborted: decoded"] and not seen["aborted: left"]
    assert seen["worst"] < EXACT
