"""TextStream: nothing is shown that later bytes take back, and nothing is lost."""

from __future__ import annotations

import random
import time

import pytest

from dflash_local.text_stream import TextStream


def stream(data: bytes, stops: tuple[str, ...], sizes: list[int]) -> tuple[list[str], str | None]:
    text, parts, at = TextStream(stops), [], 0
    for size in [*sizes, len(data)]:
        parts.append(text.push(data[at : at + size]))
        at += size
    return [*parts, text.finish()], text.stopped_by


def test_split_characters_are_held_back() -> None:
    parts, _ = stream("é😀".encode(), (), [1, 1, 1, 1, 1, 1])
    assert parts == ["", "é", "", "", "", "😀", "", ""]


def test_invalid_bytes_become_replacement_characters() -> None:
    assert "".join(stream(b"a\xff\xfeb", (), [2])[0]) == "a\ufffd\ufffdb"


def test_unfinished_character_at_the_end_is_dropped() -> None:
    assert "".join(stream("ab😀".encode()[:-1], (), [3])[0]) == "ab"


def test_stop_string_over_chunks() -> None:
    assert stream(b"one STOP two", ("STOP",), [5, 2]) == (["one ", "", "", ""], "STOP")


def test_false_start_of_a_stop_string_comes_late_but_comes() -> None:
    assert stream(b"a STO b", ("STOP",), [5]) == (["a ", "STO b", ""], None)


def test_held_tail_comes_at_the_end() -> None:
    assert stream(b"a STO", ("STOP",), [5]) == (["a ", "", "STO"], None)


def test_repeated_prefix_inside_a_stop_string() -> None:
    # A naive automaton that restarts at the mismatch misses this one.
    assert stream(b"aab", ("ab",), [1, 1]) == (["", "a", "", ""], "ab")


def test_earliest_stop_wins() -> None:
    assert stream(b"xBAy", ("A", "B"), [])[1] == "B"


@pytest.mark.parametrize("seed", range(200))
def test_any_split_gives_the_unsplit_text(seed: int) -> None:
    rng = random.Random(seed)
    answer = "".join(rng.choice("abé😀\n") for _ in range(rng.randrange(30)))
    stops = tuple("".join(rng.choice("abé") for _ in range(rng.randrange(1, 4))) for _ in range(rng.randrange(3)))
    sizes = [rng.randrange(0, 4) for _ in range(40)]
    parts, stopped_by = stream(answer.encode(), stops, sizes)
    ends = [at for stop in stops if (at := answer.find(stop)) >= 0]
    assert "".join(parts) == (answer[: min(ends)] if ends else answer)
    assert (stopped_by is not None) == bool(ends)


def test_long_stop_strings_cost_what_the_text_costs() -> None:
    """Of the second one the text ends with half, again and again: to look for that from the longest prefix down takes
    minutes."""
    text = TextStream(("a" * 10_000 + "b", "a" * 5_000 + "c" + "a" * 5_000))
    begun = time.thread_time()
    for _ in range(9_000):
        text.push(b"a")
    assert time.thread_time() - begun < 20
    assert (text.finish(), text.stopped_by) == ("a" * 9_000, None)
