"""Systems of several projects: who qualifies, and what is compared."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import rivals
from benchmarks.http_load import Answer
from benchmarks.systems import OURS, PLAIN

OFF = "dflash-local, lookup off"
SECONDS = {PLAIN: 1.0, "upstream a": 2.0, "upstream b": 0.8, "ik plain": 0.5, "ik suffix": 0.4, OFF: 0.625, OURS: 0.25}


def answer(seconds: float, passes: int = 50) -> Answer:
    return Answer("text", 9, 101, "length", seconds, 0.1, seconds, passes)


def runs(*slower: float) -> dict[str, Sequence[Sequence[Answer]]]:
    """An answer of each system in each repeat."""
    return {name: [[answer(seconds * by)] for by in slower] for name, seconds in SECONDS.items()}


def test_each_projects_best_is_found() -> None:
    found = rivals.comparison(runs(1.0, 2.0), ["ik"], OFF)
    assert found["bases"] == {PLAIN: PLAIN, "upstream": "upstream b", "ik": "ik suffix", OFF: OFF}
    assert found["over"] == {PLAIN: [4, 4], "upstream": [3.2, 3.2], "ik": [1.6, 1.6], OFF: [2.5, 2.5]}
    assert found["speeds"][OURS] == [400.0, 200.0] and found["al"][OURS] == 2.0


def test_plain_is_upstreams_best_if_drafts_do_not_pay() -> None:
    slow = {**runs(1.0), "upstream b": [[answer(9.0)]]}
    assert rivals.comparison(slow, [], OFF)["bases"]["upstream"] == PLAIN


def test_who_is_far_from_its_projects_best_leaves() -> None:
    first = {name: [answer(seconds), answer(10 * seconds)] for name, seconds in SECONDS.items()}
    assert rivals.qualified(first, ["ik"]) == [PLAIN, "upstream b", "ik plain", "ik suffix", OFF, OURS]
    first["upstream a"] = [answer(9.0), answer(7.0)]  # slow at the first prompt, and at the second the fastest
    first["ik plain"] = [answer(0.6), answer(6.0)]
    found = rivals.qualified(first, ["ik"])
    assert "upstream a" in found and "ik plain" not in found


def test_one_prompt_of_each_kind() -> None:
    prompts = [{"n": i} for i in range(4)]
    assert rivals.one_of_each(prompts, ["edit", "chat", "edit", "talk"]) == [{"n": 0}, {"n": 1}, {"n": 3}]


def test_a_table_names_who_was_the_best() -> None:
    row = {"kind": "edit", "temperature": 0.8, **rivals.comparison(runs(1.0, 2.0), ["ik"], OFF)}
    head, _, line, *_ = rivals.comparison_table([row], ["kind", "temperature"], [OFF, OURS], "Here.").splitlines()
    assert head.count("|") == line.count("|") and "| over ik's best | over own plain |" in head
    assert line.startswith("| edit | 0.8 | 75 | 94 (upstream b) | 188 (ik suffix) | 120 | 300 | 4.00 (4.00-4.00) |")
    assert line.endswith("| 2.00, 2.00 |")
