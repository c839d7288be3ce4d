"""Limits: how long clients may take, and how much they may hold at once."""

from __future__ import annotations

from dataclasses import dataclass

from dflash_local.words import MIB


@dataclass(frozen=True)
class Limits:
    """What keeps one client from starving the others.

    Attributes:
        timeout: seconds that a client may take to send a body, or to read a part of an answer.
        head_timeout: seconds for the head of a request, for the rest of a body whose answer did not wait for it, and
            for the last bytes of an answer that has ended.
        connections: open at once. One more closes the one that has been longest without a request.
        body: bytes of one body.
        bodies: bytes of all bodies that are being read or have not been turned into tokens yet (by a router: have not
            been passed on yet). How much more memory one of them takes once it is parsed is bounded in fields/body.py.
        free_body: bytes of each body that do not count among them, so that large ones do not lock out small ones.
    """

    timeout: float = 300.0
    head_timeout: float = 60.0
    connections: int = 2048
    body: int = 64 * MIB
    bodies: int = 256 * MIB
    free_body: int = MIB // 4
