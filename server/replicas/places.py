"""Places: which replica has which beginning of a conversation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

# Beginnings that are remembered, some 150 bytes each.
KEPT = 100_000


class Places:
    """Remembers to which replica a gateway sent each beginning; forgets the least recently used first."""

    def __init__(self, n_kept: int = KEPT) -> None:
        self._n_kept = n_kept
        self._replicas: OrderedDict[str, str] = OrderedDict()

    def find(self, keys: Sequence[str], replicas: Collection[str]) -> str | None:
        """The one of `replicas` that has the longest of the beginnings `keys`; None if none has any."""
        for key in keys:
            replica = self._replicas.get(key)
            if replica in replicas:
                self._replicas.move_to_end(key)
                return replica
        return None

    def keep(self, keys: Sequence[str], replica: str) -> None:
        """Remember that `replica` has them now."""
        for key in reversed(keys):
            self._replicas[key] = replica
            self._replicas.move_to_end(key)
        while len(self._replicas) > self._n_kept:
            self._replicas.popitem(last=False)
