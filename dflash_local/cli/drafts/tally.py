"""Tally: totals over the passes of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Tally:
    """Totals over the passes after the prompt's."""

    def __init__(self) -> None:
        self.n_passes = 0
        self.draft_ms = self.verify_ms = 0.0
        self._nodes = 0
        self._accepted: list[int] = []  # passes that accepted at least 1, 2, ... draft tokens
        self._plain_ms = 0.0  # for the tokens of passes with a known plain cost
        self._n_costed = 0

    def add(self, one_pass: Mapping[str, Any]) -> None:
        """Add a pass; the prompt's is not counted."""
        if not one_pass["nodes"]:
            return
        n_tokens, accepted = len(one_pass["tokens"]), int(one_pass["accepted"])
        self.n_passes += 1
        self._nodes += one_pass["nodes"]
        self.draft_ms += one_pass["draft_ms"]
        self.verify_ms += one_pass["verify_ms"]
        self._accepted += [0] * (accepted - len(self._accepted))
        for depth in range(accepted):
            self._accepted[depth] += 1
        if one_pass["plain_ms"] > 0:
            self._n_costed += n_tokens
            self._plain_ms += n_tokens * one_pass["plain_ms"]

    @property
    def nodes_mean(self) -> float:
        return self._nodes / self.n_passes if self.n_passes else 0.0

    @property
    def acceptance(self) -> list[float]:
        """The shares of passes that accepted at least 1, 2, ... draft tokens."""
        return [count / self.n_passes for count in self._accepted]

    @property
    def plain_per_second(self) -> float | None:
        """Estimated tokens per second with one pass for each, by the measured costs; None if those are unknown."""
        return 1e3 * self._n_costed / self._plain_ms if self._plain_ms else None

    def shares(self, total_ms: float) -> dict[str, float]:
        """The shares of `total_ms` for the target's passes, the drafter's passes, and all else."""
        total_ms = max(total_ms, self.verify_ms + self.draft_ms)
        if not total_ms:
            return {}
        verify, draft = self.verify_ms / total_ms, self.draft_ms / total_ms
        return {"verify": verify, "draft": draft, "other": 1 - verify - draft}
