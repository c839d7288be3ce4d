"""The kinds of drafters, one module each: what a kind adds to a plain DFlash drafter, and what it supports.

The engine's table of what it computes: ggml_ops/llama/drafter_kind.h.
"""

from __future__ import annotations

from collections.abc import Collection

from .dflare import DFlare
from .dflash2 import DFlash2
from .domino import Domino
from .dspark import DSpark
from .kind import Kind, KindClues
from .lilicorr import LiliCorr

__all__ = [
    "KINDS", "DFlare", "DFlash2", "DSpark", "Domino", "Kind", "KindClues", "LiliCorr", "kind_in", "lattice_kinds",
    "read_kind",
]  # fmt: skip

# the first match counts
KINDS: tuple[type[Kind], ...] = (DFlash2, DFlare, Domino, LiliCorr, DSpark)


def read_kind(clues: KindClues) -> Kind:
    """The kind of a checkpoint. Raises ConvertError."""
    return next((kind for kind in KINDS if kind.is_kind_of(clues)), Kind).read(clues)


def kind_in(keys: Collection[str]) -> type[Kind]:
    """The kind of a drafter GGUF with these keys (without "dflash."); a DFlare drafter counts as a plain one."""
    return next((kind for kind in KINDS if kind.key in keys), Kind)


def lattice_kinds() -> str:
    """The names of the kinds with a lattice, for a sentence."""
    *names, last = sorted(kind.name for kind in KINDS if kind.lattice)
    return f"{', '.join(names)} or {last}"
