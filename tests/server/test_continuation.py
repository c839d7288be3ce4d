"""What is expected behind a text, from what followed its end elsewhere."""

from __future__ import annotations

import time

import pytest

from dflash_local.server.continuation import LEAST_MATCH, LENGTH, continuation

KNOWN = "def first(self):\n    return self._items[0]\n"


@pytest.mark.parametrize(
    ("before", "texts", "after"),
    [
        ("def last(self):\n    return self._it", [KNOWN], "ems[0]\n"),  # within a word
        ("def last(self):\n    return", [KNOWN], " self._items[0]\n"),
        ("def last(self):\n", [KNOWN], "    return self._items[0]\n"),
        ("a = 1\n", [KNOWN], ""),  # nothing agrees
        ("):\n", ["):\n    x"], ""),  # too little does
        (" " * 20, [" " * 30 + "x"], ""),  # blanks are no evidence
        ("", [KNOWN], ""),
        ("def last(self):\n    return self._items[0]\n", [KNOWN], ""),  # it ends there
    ],
)
def test_what_followed_elsewhere(before: str, texts: list[str], after: str) -> None:
    assert continuation(before, texts) == after


def test_the_longest_match_counts_and_a_tie_says_nothing() -> None:
    near, far = "alpha beta gamma 1", "omega beta gamma 2"
    assert continuation("alpha beta gamma ", [near, far]) == "1"
    assert continuation("omega beta gamma ", [near, far]) == "2"
    assert continuation("other beta gamma ", [near, far]) == ""
    assert continuation("other beta gamma ", [near, far, "other beta gamma 3"]) == "3"
    assert continuation("other beta gamma ", [near, "omega beta gamma 1 or 2"]) == "1 or 2"  # the last of equal ones


def test_the_text_itself_is_searched() -> None:
    assert continuation("total += one\nnext()\ntotal += ", []) == "one\nnext()\ntotal += "[:LENGTH]


def test_ends_of_the_search() -> None:
    key = "x" * LEAST_MATCH
    assert continuation(key, [key + "y" * 1000]) == "y" * LENGTH
    start = time.thread_time()
    for _ in range(10):
        continuation("ab" * 100_000, ["ab" * 100_000] * 8)
    assert time.thread_time() - start < 10
