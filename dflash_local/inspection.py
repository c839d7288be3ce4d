"""Inspection: single passes of an engine's models, their inner values, and the KV cells behind them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dflash_local.arguments import check_fields, checked
from dflash_local.draft_options import MAX_NODES
from dflash_local.engine_base import EngineBase, check_between
from dflash_local.errors import RequestError
from dflash_local.native import TreeRows

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Score:
    """The target's view of tokens[start:]; each array has length len(tokens) - start."""

    best_id: np.ndarray  # int32: the target's own choice
    best_logit: np.ndarray  # float32: its logit
    logit: np.ndarray  # float32: the logit of the token that was fed


@dataclass(frozen=True, slots=True)
class DraftProbe:
    """The inner values of one drafter pass, float32 except `ids` (int32).

    hidden [n_block, n_embd] after the final norm; logits [n_block, n_vocab] after scale and soft-cap; ids [n_block, k]
    candidates; scores [n_block, k] log-probabilities, best first (DFlash, DFlare), or [n_block, k, k] pair scores,
    predecessor first (kinds with a lattice, whose candidates come in any order).
    """

    hidden: np.ndarray
    logits: np.ndarray
    ids: np.ndarray
    scores: np.ndarray


class Taps(NamedTuple):
    """What the target makes of each token of a text, float32 except `ids` (int32).

    hidden [n, n_layers, n_embd]: inputs of its layers; ids, log_probs [n - first, top_k]: the likeliest next tokens.
    """

    hidden: np.ndarray
    ids: np.ndarray
    log_probs: np.ndarray


class Inspection(EngineBase):
    """The part of `Engine` that tests, benchmarks and training look through. A base class, since its methods are public
    ones of the engine, which would otherwise have to repeat each of them."""

    @checked
    def score(self, tokens: Sequence[int], start: int, width: int = 1) -> Score:
        """Teacher-forced check of tokens[start:] in passes of `width` rows, no drafter; waits for an idle slot."""
        ids = self._token_array(tokens, "tokens")
        check_between("start", start, 1, len(ids))
        check_between("width", width, 1, MAX_NODES + 1)
        self._check_length(ids)
        return self._scheduler.call_on_slot(lambda slot: Score(*self._native.score(slot, ids, start, width))).result()

    @checked
    def draft_probe(self, tokens: Sequence[int], n_block: int) -> DraftProbe:
        """The drafter's view after tokens[:-1] with tokens[-1] as anchor; waits for an idle slot. The tokens before the
        anchor may include media rows, as long as their MediaPrompt is kept alive."""
        drafter = self._info.get("drafter")
        if not drafter:
            raise RequestError("draft_probe needs a drafter", param="drafter", hint="pass drafter=... (-md)")
        ids = self._token_array(tokens, "tokens", media=True)
        if len(ids) < 2:
            raise RequestError(f"tokens must be at least 2, got {len(ids)}: the last is the anchor", param="tokens")
        if ids[-1] < 0:
            raise RequestError("the last of tokens, the anchor, must be text", param="tokens")
        check_between("n_block", n_block, 2, drafter["block_size"])
        k = int(drafter["top_k"])
        shapes = {
            "hidden": (n_block, int(drafter["n_embd"])),
            "logits": (n_block, self.n_vocab),
            "ids": (n_block, k),
            "scores": (n_block, k, k) if drafter["lattice"] else (n_block, k),
        }
        return self._scheduler.call_on_slot(
            lambda slot: DraftProbe(**self._native.draft_probe(slot, ids, n_block, shapes))
        ).result()

    @checked
    def tap(self, tokens: Sequence[int], layers: Sequence[int], top_k: int = 0, first: int = 0) -> Taps:
        """What drafters are trained from: the inputs of the target's `layers` for each token (`drafting.FINAL_STATE`:
        what MTP layers read), and for those from `first` on the `top_k` likeliest next tokens; waits for an idle slot.
        The tokens may include media rows, as long as their MediaPrompt is kept alive.

        Raises:
            RequestError: a layer cannot be tapped, or the engine drafts with more than lookup.
        """
        ids = self._token_array(tokens, "tokens", media=True)
        if not ids:
            raise RequestError("tokens must be at least 1", param="tokens")
        self._check_length(ids)
        check_between("top_k", top_k, 0, self.n_vocab)
        check_between("first", first, 0, len(ids))
        layers = _indices(layers, "layers", "numbers of layers")
        n_embd = int(self._info["target"]["n_embd"])
        return self._scheduler.call_on_slot(
            lambda slot: Taps(*self._native.tap(slot, ids, layers, n_embd, top_k, first))
        ).result()

    @checked
    def tree_pass(self, trees: Sequence[TreeRows]) -> list[np.ndarray | None]:
        """One target pass over trees of idle slots (named by TreeRows), then the commit of their paths. Returns logits
        [n_nodes, n_vocab] for each tree.

        The slots keep their caches from call to call, so nothing else may run meanwhile; end with `slot_clear`.

        Raises:
            RequestError: a tree is malformed, or the target refuses trees; the message says why.
        """
        for tree in trees:
            self._check_tree(tree)
        return self._scheduler.call(lambda: self._native.tree_pass(trees, self.n_vocab)).result()

    @checked
    def slot_clear(self, slot: int) -> None:
        """Clear an idle slot's cached tokens."""
        self._check_slot(slot)
        self._scheduler.call(lambda: self._native.slot_clear(slot)).result()

    def cells(self) -> dict[str, Any]:
        """The target's KV cells (dflash_cells)."""
        return self._scheduler.call(self._native.cells).result()

    def _check_tree(self, tree: TreeRows) -> None:
        check_fields(tree, TreeRows._fields)
        self._check_slot(tree.slot)
        self._token_array(tree.tokens, "tokens")
        for name, indices in (("parents", tree.parents), ("path", tree.path)):
            _indices(indices, name, "indices of rows")

    def _check_length(self, tokens: Sequence[int]) -> None:
        if len(tokens) > self.n_ctx_slot:
            raise RequestError(
                f"tokens are {len(tokens)}, but a slot's context holds {self.n_ctx_slot}", param="tokens"
            )


def _indices(values: Sequence[int], param: str, words: str) -> array[int]:
    try:
        return array("i", values)
    except (TypeError, OverflowError):
        raise RequestError(f"{param} must be {words}", param=param) from None
