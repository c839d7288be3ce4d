"""benchmarks/adapted_server.py: what is asked, and what the table says."""

from __future__ import annotations

from benchmarks.adapted_server import N_UNSEEN, SHORTEST, markdown, requests


def test_requests_ask_about_a_function_each() -> None:
    found = requests(200, 0.7)
    asked = [body["messages"][0]["content"] for body in found]
    assert len(asked) > 20 * N_UNSEEN
    assert len({*asked}) > 0.99 * len(asked)  # few functions are there twice
    assert all("def " in text and text.count("\n") >= SHORTEST for text in asked)
    assert requests(200, 0.7) == found


def test_a_row_says_what_was_before_the_first_round() -> None:
    row = {
        "round": 2, "tokens": 20123, "minutes": 4.25, "held_out": [2.0, 2.5], "taken": True,
        "unseen": [{"al": 2.1, "over_plain": 1.2}, {"al": 2.6, "over_plain": 1.4}],
        "alone_ms": [100.0, 102.0, 140.0], "beside_ms": [], "long_before": [1.5, 1.25], "long_after": [1.75, 1.5],
    }  # fmt: skip
    assert markdown([row], "footer").splitlines()[2] == (
        "| 2 | 20,123 | 4.2 | 2.00 → 2.50 | yes | 2.10 → 2.60 | 1.20 → 1.40 | 102 (100-140) | - | "
        "1.50 1.25 → 1.75 1.50 |"
    )
