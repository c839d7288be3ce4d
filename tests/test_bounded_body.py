"""A body that is too long is not read to its end."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_local.bounded_body import bounded_body


def test_a_body_within_the_limit() -> None:
    assert bounded_body([], 0) == b""
    assert bounded_body([b"ab", b"", b"c"], 3) == b"abc"


def test_a_body_beyond_it_is_left() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            sent.append(b"ab")
            yield b"ab"

    sent: list[bytes] = []
    assert bounded_body(endless(), 5) is None and len(sent) == 3
