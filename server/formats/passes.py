"""Passes: what each target pass of an answer verified and kept, for requests with `return_drafts`."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence

from dflash_local.engine import Engine
from dflash_local.generation import Completion, Generation, Step
from dflash_local.native import Origin, VerifiedTree
from dflash_local.server.shapes.passes import NodeAnswer, PassAnswer, Proposer

# Keyed by plain numbers: this is looked up for every node.
_BY: dict[int, Proposer] = {
    Origin.TARGET.value: "target",
    Origin.DRAFTER.value: "draft",
    Origin.MTP.value: "mtp",
    Origin.LOOKUP.value: "lookup",
    Origin.PREDICTION.value: "prediction",
    Origin.CORPUS.value: "lookup",
    Origin.ANSWERS.value: "lookup",
}
_DIGITS = 4  # of probabilities; of milliseconds, one less


class ChoicePasses:
    """The passes of one choice, in order: `push` as they come, or `whole` at the end.

    Args:
        names: the bytes of all tokens, control tokens too: what the model wrote.
    """

    def __init__(self, choice: int, names: Mapping[int, bytes]) -> None:
        self._choice, self._names = choice, names
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_passes = 0

    def push(self, step: Step, tokens: Sequence[int]) -> PassAnswer:
        """The next pass, and the tokens that the answer got from it. A split character belongs to its last token."""
        number, self._n_passes = self._n_passes, self._n_passes + 1
        return {
            "pass": number,
            "choice": self._choice,
            "nodes": step.n_nodes,
            "depth": step.n_depth,
            "denoised": step.n_denoised,
            "accepted": step.n_accepted,
            "reason": step.reason,
            "draft_ms": round(step.draft_ms, _DIGITS - 1),
            "verify_ms": round(step.verify_ms, _DIGITS - 1),
            "plain_ms": round(step.plain_ms, _DIGITS - 1),
            "tokens": [self._decoder.decode(self._names[token]) for token in tokens],
            "tree": self._nodes(step.tree) if step.tree else [],
            "path": step.tree.path if step.tree else [],
        }

    def whole(self, completion: Completion) -> list[PassAnswer]:
        """The passes of a finished answer, except the prompt's last one."""
        end = len(completion.tokens) - sum(step.n_tokens for step in completion.steps)
        self._decoder.decode(b"".join(self._names[token] for token in completion.tokens[:end]))
        self._n_passes = 1
        bodies = []
        for step in completion.steps:
            start, end = end, end + step.n_tokens
            bodies.append(self.push(step, completion.tokens[start:end]))
        return bodies

    def _nodes(self, tree: VerifiedTree) -> list[NodeAnswer]:
        columns = zip(tree.tokens, tree.parents, tree.probs, tree.values, tree.origins, strict=True)
        return [
            {
                "t": self._names[token].decode("utf-8", "replace"),
                "p": parent,
                "prob": round(prob, _DIGITS) if prob > 0 else None,
                "value": round(value, _DIGITS),
                "by": _BY[origin],
            }
            for token, parent, prob, value, origin in columns
        ]


def choice_passes(engine: Engine, generations: Sequence[Generation]) -> list[ChoicePasses]:
    """One for each choice; none at all unless the request asks for them."""
    if not all(generation.request.return_drafts for generation in generations):
        return []
    return [ChoicePasses(choice, engine.pieces(special=True)) for choice in range(len(generations))]
