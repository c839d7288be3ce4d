"""DFlare: each layer has its own weights for mixing the taps, and its own projections of context rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

from ..tensor_spec import Dimensions, TensorSpec, matrix, vector
from .kind import Kind, KindClues

FUSION = "layer_fusion_weights"


@dataclass(frozen=True)
class DFlare(Kind):
    """Source: package `angelslim` 0.5.0, QwenDFlareDraftModel (arXiv 2606.02091)."""

    name: ClassVar[str] = "DFlare"
    trains: ClassVar[bool] = True

    @classmethod
    def is_kind_of(cls, clues: KindClues) -> bool:
        return super().is_kind_of(clues) or FUSION in clues.found

    def fusion(self, drafter: Dimensions) -> Iterator[TensorSpec]:
        shape = (drafter.n_layer, len(drafter.taps))
        yield TensorSpec("layer_fusion.weight", shape, FUSION, shape, type=GGMLQuantizationType.F32, transform=_softmax)

    def layer_tensors(self, drafter: Dimensions, layer: int, found: Collection[str]) -> Iterator[TensorSpec]:
        n_rows = drafter.n_head_kv * drafter.head_dim
        for part in ("k", "v"):
            name, source = f"blk.{layer}.attn_{part}_ctx", f"layers.{layer}.self_attn.{part}_proj"
            rotated = part == "k"
            yield matrix(name, f"{source}_target", n_rows, drafter.n_embd, rotated=rotated)
            if f"{source}.bias" in found:
                yield vector(f"{name}.bias", f"{source}_target.bias", n_rows, rotated=rotated)


def _softmax(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The shares of the taps in each layer's context row, from the trained logits."""
    powers = np.exp(rows.astype(np.float64) - rows.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)
