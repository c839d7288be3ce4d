"""TensorSpec: a tensor of a drafter GGUF and its source in the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a drafter that determine the shapes of tensors. `n_vocab_draft` is smaller than `n_vocab`, the
    target's, if the drafter has a reduced vocabulary."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_vocab: int
    n_vocab_draft: int
    taps: tuple[int, ...]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of the GGUF and its source.

    `source` is its checkpoint name without a prefix, `source_shape` the required shape there (row-major), from which
    this tensor takes the rows from `first_row` on. `shape` is the tensor's own. `type` is set where the graph accepts
    only one type. `wide` marks a matrix whose inputs exceed float16's range. `rotated` marks rows (of a vector:
    elements) in the order of a head's rotated dimensions. `transform` converts whole rows of the checkpoint to those of
    the GGUF. A tensor with `values` is computed from the configuration and has no source.
    """

    name: str
    shape: tuple[int, ...]
    source: str = ""
    source_shape: tuple[int, ...] = ()
    first_row: int = 0
    type: GGMLQuantizationType | None = None
    wide: bool = False
    rotated: bool = False
    transform: Callable[[Rows], Rows] | None = None
    values: tuple[float, ...] = ()


def matrix(name: str, source: str, n_out: int, n_in: int, *, rotated: bool = False) -> TensorSpec:
    """`{source}.weight` as `{name}.weight`, in the type of matrices."""
    return TensorSpec(f"{name}.weight", (n_out, n_in), f"{source}.weight", (n_out, n_in), rotated=rotated)


def vector(name: str, source: str, n: int, *, rotated: bool = False) -> TensorSpec:
    """`source` as `name`, float32."""
    return TensorSpec(name, (n,), source, (n,), type=GGMLQuantizationType.F32, rotated=rotated)


def norm(name: str, source: str, n: int, *, rotated: bool = False) -> TensorSpec:
    """The weights of a norm: `{source}.weight` as `{name}.weight`, float32."""
    return vector(f"{name}.weight", f"{source}.weight", n, rotated=rotated)
