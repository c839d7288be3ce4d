"""Tints: who proposed each part of the text that a chat shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

# Of text that came but was not shown yet: a parser keeps markers and calls of tools for itself, and may hold back as
# much as a stop string has.
_MOST_PENDING = 1 << 14


class Tinted(NamedTuple):
    """A text and who proposed it: "target", "draft", "lookup" or "prediction"; `depth` is its place in the tree, 0 for
    what the target wrote itself."""

    text: str
    by: str = "target"
    depth: int = 0


def tinted(told: Mapping[str, Any]) -> list[Tinted]:
    """What a pass added to the answer, token by token."""
    tree, path = told["tree"], told["path"]
    drafted = min(int(told["accepted"]), len(path) - 1)
    return [
        Tinted(text, str(tree[path[place]]["by"]), place) if place <= drafted else Tinted(text)
        for place, text in enumerate(told["tokens"], 1)
    ]


def refused(told: Mapping[str, Any]) -> str:
    """The most likely of what the pass refused: the tree's best way on from where the walk left it."""
    tree, path = told["tree"], told["path"]
    texts: list[str] = []
    at = path[-1] if path else None
    while at is not None:
        children = [node for node, told_of in enumerate(tree) if told_of["p"] == at]
        at = max(children, key=lambda node: tree[node]["value"], default=None)
        if at is not None:
            texts.append(str(tree[at]["t"]))
    return "".join(texts)


class Tints:
    """Lays the passes' tokens beside the text that is shown, which is theirs but for what a parser takes out."""

    def __init__(self) -> None:
        self._pending: deque[Tinted] = deque()
        self._length = 0

    def push(self, told: Mapping[str, Any]) -> None:
        """One more pass."""
        for part in tinted(told):
            if part.text:
                self._pending.append(part)
                self._length += len(part.text)
        while self._length > _MOST_PENDING:
            self._length -= len(self._pending.popleft().text)

    def take(self, text: str) -> list[Tinted]:
        """The next text that is shown, in parts; what came before it in the passes will not be shown any more. Text
        that no pass had is nobody's draft."""
        start = "".join(part.text for part in self._pending).find(text)
        if start < 0:
            return [Tinted(text)]
        self._cut(start)
        return self._cut(len(text))

    @property
    def all_taken(self) -> bool:
        """Whether everything that came was shown."""
        return not self._pending

    def _cut(self, length: int) -> list[Tinted]:
        parts: list[Tinted] = []
        self._length -= length
        while length:
            part = self._pending.popleft()
            if len(part.text) > length:
                self._pending.appendleft(part._replace(text=part.text[length:]))
                part = part._replace(text=part.text[:length])
            parts.append(part)
            length -= len(part.text)
        return parts
