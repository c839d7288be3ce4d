"""The kinds of drafters: what each adds to a plain DFlash drafter. One module for each; `read_kind` chooses."""

from __future__ import annotations

from collections.abc import Collection

from ..keys import Keys
from ..packaging import Packaging
from .dflare import FUSION, DFlare
from .dflash2 import DFlash2
from .kind import Kind

__all__ = ["DFlare", "DFlash2", "Kind", "read_kind"]


def read_kind(keys: Keys, packaging: Packaging, found: Collection[str], n_embd: int, n_vocab: int) -> Kind:
    """The kind of the checkpoint with these settings and tensor names. Raises ConvertError."""
    if packaging.is_dflash2:
        return DFlash2.read(keys, n_embd, n_vocab)
    if packaging.is_dflare or FUSION in found:
        return DFlare()
    return Kind()
