"""Clients of the server, and what they keep account of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx

from tests.fuzz.http.barrage import Barrage

from .answers import Said, difference

MOST_FAILURES = 20


class Asked(NamedTuple):
    """One of the questions, and whether its answer is a stream."""

    kind: str
    variant: int
    stream: bool


@dataclass
class Tally:
    """What the clients did and saw."""

    begun: Counter[str] = field(default_factory=Counter)  # deeds
    done: Counter[str] = field(default_factory=Counter)  # those that came to their end
    compared: Counter[Asked] = field(default_factory=Counter)  # questions whose answers were compared
    comparing: Counter[str] = field(default_factory=Counter)  # the deeds that compared them
    seen: Counter[str] = field(default_factory=Counter)  # what deeds may meet with: OUTCOMES (deeds.py)
    refusals: Counter[int] = field(default_factory=Counter)  # places in REFUSALS of what was refused
    refused: Counter[str] = field(default_factory=Counter)  # the same, by status
    busy: Counter[str] = field(default_factory=Counter)  # documented refusals of a server that has too much to do
    failures: list[str] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether more failures would tell no more."""
        return len(self.failures) >= MOST_FAILURES


@dataclass(frozen=True)
class Client:
    """One of many. `known`: the answers that the server gave before, alone; `barrage`: makes damaged requests."""

    http: httpx.AsyncClient
    port: int
    known: Mapping[Asked, Said]
    barrage: Barrage
    tally: Tally

    def answers(self, kind: str) -> bool:
        """Whether the server answers questions of this kind."""
        return any(asked.kind == kind for asked in self.known)

    def compare(self, asked: Asked, now: Said, deed: str) -> None:
        """Raise AssertionError unless the answer is the known one."""
        if found := difference(now, self.known[asked]):
            raise AssertionError(f"another answer to {asked} {found}")
        self.tally.compared[asked] += 1
        self.tally.comparing[deed] += 1
