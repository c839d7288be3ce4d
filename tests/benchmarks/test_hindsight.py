"""The controller against fixed settings: who is the best, by which repeats, and the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import hindsight, real_models, real_pair
from benchmarks.hindsight import DEFAULT, OFF, markdown, measure, settings, speed
from benchmarks.pass_times import PassTimes
from dflash_local.engine import Completion, Engine
from dflash_local.generation import Step

OPTIONS = settings([8], [4])
# Milliseconds of a token by setting: the chain is the fastest of the fixed ones, but for a lucky repeat of the tree.
TIMES = {DEFAULT: [2.0, 2.0, 2.0], OFF: [5.0, 5.0, 5.0], "tree 8": [2.0, 1.0, 2.5], "chain 4": [1.6, 1.6, 1.6]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Setting and prompt of each answer, in their order. Each has 10 steps, of a pass each with 2 tokens."""
    asked: list[tuple[str, int]] = []

    def answers(
        _engine: Engine, prompts: Sequence[dict[str, Any]], n: int, temperature: float, **options: Any
    ) -> Iterator[Any]:
        (name,) = (name for name, its in OPTIONS.items() if its == options)
        repeat = sum(one == (name, prompts[0]["i"]) for one in asked)
        asked.append((name, prompts[0]["i"]))
        assert (n, temperature) == (50, 1.0)
        yield SimpleNamespace(timings=SimpleNamespace(n_steps=10, n_passes=5, predicted_ms=10 * TIMES[name][repeat]))

    monkeypatch.setattr(hindsight, "answers", answers)
    return asked


def test_the_best_is_that_of_the_medians(asked: list[tuple[str, int]]) -> None:
    prompts = [{"i": i} for i in range(4)]
    row = measure(cast(Engine, None), prompts, 50, 1.0, 3, OPTIONS)
    assert row["best"] == "chain 4" and row["ratio"] == pytest.approx(0.8) and not row["held"]
    assert row["over_off"] == pytest.approx(2.5) and row["al"] == dict.fromkeys(OPTIONS, 2.0)
    assert [round(speed) for speed in row["speeds"]["tree 8"]] == [500, 1000, 400]
    turns = [asked[i : i + 4] for i in range(0, len(asked), 4)]  # all settings answer a prompt, then the next
    assert [{prompt for _, prompt in turn} for turn in turns] == 3 * [{0}, {1}, {2}, {3}]
    assert all({name for name, _ in turn} == set(OPTIONS) for turn in turns)
    assert {turn[0][0] for turn in turns} == set(OPTIONS)  # each goes first

    head, _, line = markdown([{"pair": "a", "temperature": 1.0, **row}], "Here.").splitlines()[:3]
    columns = dict(zip(*([cell.strip() for cell in text.strip("|").split("|")] for text in (head, line)), strict=True))
    assert columns["chain 4"] == "**625**" and columns[DEFAULT] == "500" and columns["over off"] == "2.50"
    assert columns["default over the best fixed"] == "0.800 (0.800-0.800)"


def test_settings() -> None:
    assert OPTIONS == {
        DEFAULT: {},
        OFF: {"draft": "off"},
        "tree 8": {"budget": 8, "draft": "tree"},
        "chain 4": {"budget": 4, "draft": "chain"},
    }


def test_the_real_pair_has_a_cell_for_each_kind_of_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_models, "fetch", lambda name: Path(f"{name}.gguf"))
    args = SimpleNamespace(real_pair=True, limit=4)
    cells = list(hindsight.chosen_cells(args, None))
    assert [cell.name for cell in cells] == [
        f"smollm2, {kind}" for kind in ("functions", "other code", "chat", "edits", "quotes")
    ]
    assert [len(cell.prompts) for cell in cells] == [4, 4, 4, 3, 3]
    assert all(set(prompt) == {"messages"} for cell in cells for prompt in cell.prompts)
    assert {cell.pair.target.name for cell in cells} == {"smollm2.gguf"}
    assert all(cell.pair.drafter == real_pair.DRAFTER for cell in cells)


def test_speed_by_a_table_of_pass_times() -> None:
    steps = [Step(1, 0, 0, 0, 0, "", 9.0, 9.0), *(Step(2, n, 1, 4, 1, "", 9.0, 9.0) for n in (4, 4, 8))]
    answer = cast(Completion, SimpleNamespace(steps=steps, timings=SimpleNamespace(n_steps=6, predicted_ms=60.0)))
    times = PassTimes({1: 2.0, 8: 9.0}, [{4: 1.0}], rebuild_ms=0.5)
    assert speed([answer]) == 100 and speed([answer], times) == pytest.approx(6 / (5 + 5 + 9 + 3 * 1 + 0.5) * 1e3)
