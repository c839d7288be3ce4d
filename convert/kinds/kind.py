"""Kind: a kind of drafter, as the converter sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ..gguf_metadata import Value
from ..keys import Keys
from ..packaging import Packaging
from ..tensor_spec import Dimensions, TensorSpec, matrix


@dataclass(frozen=True)
class KindClues:
    """What tells a checkpoint's kind and its settings. `found` are the tensor names, `n_vocab` is the target's."""

    keys: Keys
    packaging: Packaging
    found: Collection[str]
    n_embd: int
    n_vocab: int
    samples_from_anchor: bool


@dataclass(frozen=True)
class Kind:
    """A plain DFlash drafter, and the base of the other kinds.

    `key`: a key (without "dflash.") that only this kind has in a GGUF. `lattice`: its candidates depend on the one
    before, so that the probability of a drawn draft is known. `needs_all_tokens`: the part, and that part's tensor,
    that prevents a reduced vocabulary. `tables`: tensors that are read row by row. `optional`: as OPTIONAL of names.py,
    for its own tensors. `trains`: `dflash-local train` can continue such a drafter; each kind says so itself.
    """

    name: ClassVar[str] = "DFlash"
    key: ClassVar[str] = ""
    lattice: ClassVar[bool] = False
    needs_all_tokens: ClassVar[tuple[str, str] | None] = None
    tables: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[Mapping[str, str]] = {}
    trains: ClassVar[bool] = True

    @classmethod
    def is_kind_of(cls, clues: KindClues) -> bool:
        """Whether the checkpoint holds such a drafter."""
        return clues.packaging.kind == cls.name

    @classmethod
    def read(cls, clues: KindClues) -> Kind:
        """Raises ConvertError."""
        return cls()

    def metadata(self) -> dict[str, Value]:
        """Keys of the GGUF, without "dflash."."""
        return {}

    def fusion(self, drafter: Dimensions) -> Iterator[TensorSpec]:
        """Tensors that make context rows from the taps, up to their norm."""
        yield replace(matrix("fc", "fc", drafter.n_embd, len(drafter.taps) * drafter.n_embd), wide=True)

    def tensors(self, drafter: Dimensions, found: Collection[str]) -> Iterator[TensorSpec]:
        """Tensors beside the layers. `found` are the checkpoint's tensor names."""
        yield from ()

    def layer_tensors(self, drafter: Dimensions, layer: int, found: Collection[str]) -> Iterator[TensorSpec]:
        """Tensors of one layer."""
        yield from ()
