"""A scripted engine whose answers are words, with trees that look like a drafter's."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from dflash_local.native import Origin, PreparedRequest, StepUpdate, VerifiedTree
from tests.fake_native import EOG, N_VOCAB, FakeNative, _Slot

_WORD = re.compile(r" ?\w+|\n+ *| +|[^\w\s]+")
_LENGTHS = (1, 5, 3, 7, 1, 8, 4, 2, 6, 1, 10, 3)  # tokens of the passes, in turns
_QUOTED = 8  # so many tokens come of a quotation
_VERIFY_MS, _NODE_MS, _DRAFT_MS, _OTHER_MS, PLAIN_MS = 30.0, 0.25, 5.0, 0.5, 29.0


class Words:
    """A vocabulary that grows with the texts that it is asked for."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._ids: dict[bytes, int] = {}

    def of(self, text: str) -> list[int]:
        """The text's tokens."""
        return [self._id(match.encode()) for match in _WORD.findall(text)]

    def passes(self, text: str) -> list[list[int]]:
        """The text's tokens by passes, and its end."""
        tokens = self.of(text)
        passes, at = [tokens[:1]], 1
        while at < len(tokens):
            size = _LENGTHS[len(passes) % len(_LENGTHS)]
            passes.append(tokens[at : at + size])
            at += size
        passes[-1].append(EOG)
        return passes

    def _id(self, piece: bytes) -> int:
        if piece not in self._ids:
            self._ids[piece] = N_VOCAB + len(self.pieces)
            self.pieces.append(piece)
        return self._ids[piece]


def tree_of(anchor: int, accepted: Sequence[int], others: Sequence[int], dice: random.Random) -> VerifiedTree:
    """The accepted path; beside it and behind it what was refused. `others` are other tokens."""
    is_quoted = len(accepted) >= _QUOTED
    rows: list[tuple[int, int, float, float, int]] = [(anchor, -1, 1.0, 1.0, Origin.TARGET)]
    path = [0]
    value = 1.0
    for depth, token in enumerate(accepted):
        parent = path[-1]
        prob = 0.0 if is_quoted else dice.uniform(0.45, 0.97)
        value *= 0.9 if is_quoted else prob
        origin = Origin.LOOKUP if is_quoted else Origin.PREDICTION if depth == 5 else Origin.DRAFTER
        path.append(len(rows))
        rows.append((token, parent, prob, value, origin))
        for _ in range(0 if is_quoted else dice.choice((0, 1, 1, 2))):
            rest = value * dice.uniform(0.02, 0.3)
            rows.append((dice.choice(others), parent, dice.uniform(0.02, 0.3), rest, Origin.DRAFTER))
    for _ in range(dice.choice((1, 2))):  # what stood where the walk ended
        parent, rest = path[-1], value
        for _ in range(dice.choice((1, 2, 3))):
            rest *= dice.uniform(0.3, 0.7)
            rows.append((dice.choice(others), parent, dice.uniform(0.2, 0.6), rest, Origin.DRAFTER))
            parent = len(rows) - 1
    tokens, parents, probs, values, origins = (list(column) for column in zip(*rows, strict=True))
    return VerifiedTree(tokens, parents, probs, values, [int(origin) for origin in origins], path)


def depth_of(tree: VerifiedTree) -> int:
    depths = [0]
    for parent in tree.parents[1:]:
        depths.append(depths[parent] + 1)
    return max(depths)


class DraftedNative(FakeNative):
    """Passes of more than one token have a tree; the times are made up."""

    words = Words()

    def info(self) -> dict[str, Any]:
        info = super().info()
        return {**info, "target": {**info["target"], "n_vocab": N_VOCAB + max(1, len(self.words.pieces))}}

    def token_piece(self, token: int, special: bool) -> bytes:
        return self.words.pieces[token - N_VOCAB] if token >= N_VOCAB else super().token_piece(token, special)

    def submit(self, slot: int, request: PreparedRequest) -> None:
        super().submit(slot, request)
        state = self._slots[slot]
        if state.plain:
            state.passes = [[token] for tokens in state.passes for token in tokens]

    def _pass(self, index: int, slot: _Slot) -> StepUpdate:
        before = slot.stats.t_generate_ms
        update = super()._pass(index, slot)
        if not slot.params["return_drafts"] or update.tree is None:
            return update
        if slot.plain or not update.n_accepted:
            reason = update.reason if slot.plain else "plain decoding is faster"
            slot.stats.t_generate_ms = before + PLAIN_MS + _OTHER_MS
            return update._replace(
                n_denoised=0, reason=reason, draft_ms=0.0, verify_ms=PLAIN_MS, plain_ms=PLAIN_MS + _OTHER_MS
            )
        accepted = [update.tree.tokens[node] for node in update.tree.path[1:]]
        dice = random.Random(len(slot.tokens))
        tree = tree_of(update.tree.tokens[0], accepted, self._others(accepted), dice)
        n_nodes = len(tree.tokens)
        is_quoted = len(accepted) >= _QUOTED
        verify_ms = _VERIFY_MS + _NODE_MS * n_nodes
        draft_ms = 0.0 if is_quoted else _DRAFT_MS
        slot.stats.t_generate_ms = before + draft_ms + verify_ms + _OTHER_MS
        return update._replace(
            n_drafted=n_nodes - 1,
            n_depth=depth_of(tree),
            n_denoised=0 if is_quoted else 8,
            reason="prompt lookup alone" if is_quoted else "drafting pays",
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            plain_ms=PLAIN_MS + _OTHER_MS,
            tree=tree,
        )

    def _others(self, accepted: Sequence[int]) -> list[int]:
        known = range(N_VOCAB, N_VOCAB + len(self.words.pieces)) if accepted[0] >= N_VOCAB else range(97, 123)
        return [token for token in known if token not in accepted]
