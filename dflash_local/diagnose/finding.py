"""Finding: the result of one check, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Level(str, Enum):
    """Severity: FAIL means that it will not or must not run, WARN that it runs worse than it could."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """`subject` is what was checked, `advice` one line on how to fix it, `field` the GGUF key or tensor to blame."""

    level: Level
    subject: str
    text: str
    advice: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        advice = f"\n{'':22}-> {self.advice}" if self.advice else ""
        return f"{self.level.value:>4}  {self.subject:<16}{self.text}{advice}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "level": self.level.value}


def ok(subject: str, text: str) -> Finding:
    return Finding(Level.OK, subject, text)


def warn(subject: str, text: str, advice: str, field: str | None = None) -> Finding:
    return Finding(Level.WARN, subject, text, advice, field)


def fail(subject: str, text: str, advice: str, field: str | None = None) -> Finding:
    return Finding(Level.FAIL, subject, text, advice, field)


def same(subject: str, found: int, wanted: int, misfit: str, advice: str, field: str, *, unit: str = "") -> Finding:
    """OK if two numbers are the same, else FAIL; `misfit` says what they are."""
    return ok(subject, f"{wanted}{unit}") if found == wanted else fail(subject, misfit, advice, field)


def worst(findings: Iterable[Finding]) -> Level:
    """The highest level among the findings; OK if there are none."""
    return max((finding.level for finding in findings), key=list(Level).index, default=Level.OK)
