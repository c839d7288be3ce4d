"""What must never be slower: the hostile drafter is sound and knows nothing, and the arithmetic of the limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from benchmarks import concurrency, guard, pairs
from benchmarks.guard import LEARN, long_prompt, row, speed_turn
from benchmarks.http_load import Answer, LoadError, LoadResult
from benchmarks.systems import BUDGET_1, OURS, PLAIN, UPSTREAM, Systems
from dflash_local import native
from dflash_local.convert.gguf_metadata import read_metadata
from tests.gguf_files import numbers


@pytest.mark.parametrize("name", ["dflash", "dflash2"])
def test_hostile_drafter_is_sound_noise_of_the_same_scale(name: str, pocket: dict[str, Path], tmp_path: Path) -> None:
    path = pairs.hostile(pocket[name], tmp_path / "hostile.gguf")
    native.check_gguf(path)
    assert read_metadata(path) == read_metadata(pocket[name])
    after = numbers(path)
    for tensor, a in numbers(pocket[name]).items():
        b = after[tensor]
        if a.ndim == 1:
            assert np.array_equal(a, b), tensor
        else:
            assert b.std() == pytest.approx(a.std(), rel=0.1), tensor
            assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.1, tensor


def test_limits_are_held_or_missed() -> None:
    plain = {PLAIN: [2.0, 2.0], BUDGET_1: [1.0, 1.0]}
    fast = row("hostile", "dflash", "q4_0", {**plain, OURS: [1.01, 1.0]}, 100)
    slow = row("hostile", "dflash", "q4_0", {**plain, OURS: [1.1, 1.0]}, 100)
    late = row("ttft", "dflash", "q4_0", {PLAIN: [1.0], OURS: [1.06]}, 0)
    soon = row("ttft", "dflash", "q4_0", {PLAIN: [1.0], OURS: [1.04]}, 0)
    assert (fast["held"], slow["held"], late["held"], soon["held"]) == (True, False, False, True)
    assert slow["ratio"] == pytest.approx(2 / 2.1, abs=1e-4) and slow["over_plain"] == pytest.approx(4 / 2.1, abs=1e-4)
    assert slow["figures"] == {PLAIN: 50.0, BUDGET_1: 100.0, OURS: 95.24}
    assert "MISSED" in guard.markdown([slow], "Here.")
    assert late["figures"] == {PLAIN: 1000.0, OURS: 1060.0}
    assert "MISSED" in guard.markdown([late], "Here.") and "MISSED" not in guard.markdown([soon], "Here.")


class Steady:
    """Takes a second to start and 10 ms per token; ends early if told to."""

    def __init__(self, end: int = 10_000) -> None:
        self.end = end
        self.seeds: list[int] = []

    def turn(self, name: str, bodies: Sequence[dict[str, Any]]) -> LoadResult:
        (body,) = bodies
        self.seeds.append(body["seed"])
        n = min(body["max_tokens"], self.end)
        return LoadResult(1.0, (Answer("", 9, n, "length", 1.0, 0.1, 1.0 + n / 100, passes=n),))


def test_only_what_follows_the_first_tokens_counts() -> None:
    systems = Steady()
    turn = speed_turn([{"messages": []}], LEARN + 50, 1.0)
    assert [turn(cast(Systems, systems), PLAIN, i) for i in range(2)] == pytest.approx([0.5, 0.5])
    assert systems.seeds[0] == systems.seeds[1] != systems.seeds[2]
    with pytest.raises(LoadError, match="120 tokens instead of 150"):
        turn(cast(Systems, Steady(end=120)), PLAIN, 0)


def test_long_prompts_share_no_beginning() -> None:
    prompts = [{"messages": [{"role": "user", "content": f"Question {i}, please?"}]} for i in range(3)]
    texts = [long_prompt(prompts, i)["messages"][0]["content"] for i in range(5)]
    assert len({text[:3] for text in texts}) == 5
    assert {len(text) for text in texts} == {int(guard.PROMPT_TOKENS * guard.LETTERS_PER_TOKEN)}


def test_concurrency_takes_ratios_within_a_repeat() -> None:
    speeds = {
        PLAIN: [10.0, 20.0, 10.0],
        UPSTREAM[0]: [15.0, 15.0, 90.0],
        UPSTREAM[2]: [20.0, 40.0, 20.0],
        OURS: [30.0, 44.0, 26.0],
    }
    found = concurrency.row(4, speeds)
    assert found["best_upstream"] == UPSTREAM[2]  # one lucky turn does not make the other one the best
    assert found["over_best"] == pytest.approx(1.3)  # of 1.5, 1.1 and 1.3; the medians' own ratio would be 1.5
    assert found["over_plain"] == pytest.approx(2.6)
    assert "| 4 | 10.0 | 15.0 | **20.0** | **30.0** | 1.30 | 2.60 |" in concurrency.markdown([found], "Here.")
