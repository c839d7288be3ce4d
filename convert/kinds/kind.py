"""What a kind of drafter is to the converter."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ..gguf_metadata import Value
from ..tensor_spec import Dimensions, TensorSpec, matrix


@dataclass(frozen=True)
class Kind:
    """A plain DFlash drafter; the others say what they add to it."""

    name: ClassVar[str] = "DFlash"

    def metadata(self) -> dict[str, Value]:
        """Keys of the GGUF, without "dflash."."""
        return {}

    def fusion(self, drafter: Dimensions) -> Iterator[TensorSpec]:
        """What makes context rows of the taps, up to their norm."""
        yield replace(matrix("fc", "fc", drafter.n_embd, len(drafter.taps) * drafter.n_embd), wide=True)

    def tensors(self, drafter: Dimensions, found: Collection[str]) -> Iterator[TensorSpec]:
        """Tensors beside the layers. `found` are the checkpoint's tensor names."""
        yield from ()

    def layer_tensors(self, drafter: Dimensions, layer: int, found: Collection[str]) -> Iterator[TensorSpec]:
        """Tensors of one layer."""
        yield from ()
