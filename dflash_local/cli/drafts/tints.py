"""Tints: the proposers of the text that a chat shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

# Characters of text not shown yet: a parser removes markers and tool calls, and holds back possible stop strings.
_MOST_PENDING = 1 << 14


class Tinted(NamedTuple):
    """A text and its proposer: "target", "draft", "lookup" or "prediction"; `depth` is its depth in the tree, 0 for the
    target's own text."""

    text: str
    by: str = "target"
    depth: int = 0


def tinted(one_pass: Mapping[str, Any]) -> list[Tinted]:
    """The text that a pass added to the answer, token by token."""
    tree, path = one_pass["tree"], one_pass["path"]
    drafted = min(int(one_pass["accepted"]), len(path) - 1)
    return [
        Tinted(text, str(tree[path[place]]["by"]), place) if place <= drafted else Tinted(text)
        for place, text in enumerate(one_pass["tokens"], 1)
    ]


def refused(one_pass: Mapping[str, Any]) -> str:
    """The likeliest refused text: the tree's best path from the node where the walk left it."""
    tree, path = one_pass["tree"], one_pass["path"]
    texts: list[str] = []
    at = path[-1] if path else None
    while at is not None:
        children = [node for node, child in enumerate(tree) if child["p"] == at]
        at = max(children, key=lambda node: tree[node]["value"], default=None)
        if at is not None:
            texts.append(str(tree[at]["t"]))
    return "".join(texts)


class Tints:
    """Aligns the tokens of passes with the shown text, which lacks only what a parser removed."""

    def __init__(self) -> None:
        self._pending: deque[Tinted] = deque()
        self._length = 0

    def push(self, one_pass: Mapping[str, Any]) -> None:
        for part in tinted(one_pass):
            if part.text:
                self._pending.append(part)
                self._length += len(part.text)
        while self._length > _MOST_PENDING:
            self._length -= len(self._pending.popleft().text)

    def take(self, text: str) -> list[Tinted]:
        """Split the next shown text into parts. Text of passes before it is dropped; text of no pass has no
        proposer."""
        start = "".join(part.text for part in self._pending).find(text)
        if start < 0:
            return [Tinted(text)]
        self._cut(start)
        return self._cut(len(text))

    @property
    def all_taken(self) -> bool:
        """Whether all text of the passes was shown."""
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
