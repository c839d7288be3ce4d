"""The kinds of drafters: what each adds to a plain DFlash drafter. One module for each; `read_kind` chooses."""

from __future__ import annotations

from collections.abc import Collection

from ..keys import Keys, wrong
from ..packaging import Packaging
from .dflare import FUSION, DFlare
from .dflash2 import DFlash2
from .domino import Domino
from .dspark import PREV, DSpark
from .kind import Kind

__all__ = ["DFlare", "DFlash2", "DSpark", "Domino", "Kind", "read_kind"]


def read_kind(
    keys: Keys, packaging: Packaging, found: Collection[str], n_embd: int, n_vocab: int, samples_from_anchor: bool
) -> Kind:
    """The kind of the checkpoint with these settings and tensor names. Raises ConvertError."""
    if packaging.kind == "DFlash 2":
        return DFlash2.read(keys, n_embd, n_vocab)
    if packaging.kind == "DFlare" or FUSION in found:
        return DFlare()
    if packaging.kind == "Domino":
        return Domino.read(keys, keys.integer("draft_vocab_size", n_vocab) < n_vocab)
    if f"{PREV}.weight" in found:
        return DSpark.read(keys, packaging, found, samples_from_anchor)
    for name in ("markov_rank", "dspark_markov_rank"):
        if keys.find(name)[1]:
            raise wrong(keys.find(name)[0], f"it is not 0, and tensor '{PREV}.weight' is missing")
    return Kind()
