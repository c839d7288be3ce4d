"""The output types of a drafter's matrices.

The choice for each tensor follows llama-quantize (`llama_tensor_get_type` in src/llama-quant.cpp): rows that are not
whole blocks fall back to a type of smaller blocks, and an output projection is kept at 6 bits. Tables that are read row
by row (embeddings, codebooks) stay at 8 bits: ggml's get_rows lacks k-quants on some devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, LlamaFileType, quants
from gguf import GGMLQuantizationType as Type

from dflash_local.errors import ConvertError

from . import FC_TYPES
from .kinds import KINDS
from .tensor_spec import TensorSpec

# Float32 rows [n, columns] -> their blocks as bytes [n, row bytes].
RowQuantizer = Callable[[Type, npt.NDArray[np.float32]], npt.NDArray[np.uint8]]

_BELOW_8_BITS = {
    Type.Q4_0, Type.Q5_0, Type.IQ4_NL, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K,
}  # fmt: skip
_SMALLER_BLOCKS = {
    Type.Q2_K: Type.IQ4_NL,
    Type.Q3_K: Type.IQ4_NL,
    Type.Q4_K: Type.Q5_0,
    Type.Q5_K: Type.Q5_1,
    Type.Q6_K: Type.Q8_0,
}


@dataclass(frozen=True)
class Outtype:
    """A choice of `--outtype`: the type of most matrices, and the file type for the metadata; and of `--fc-type`: that
    of `fc`, where a row has whole blocks of it (None: as precise as bfloat16)."""

    matrix: Type
    file_type: LlamaFileType
    fc: Type | None = None

    def of(self, spec: TensorSpec, dtype: str | None = None) -> Type:
        """The type in which a tensor is written; `dtype` is its type in the checkpoint."""
        if spec.type is not None:
            return spec.type
        if spec.wide:
            asked = None if self.fc is None else whole_blocks(self.fc, spec.shape[-1])
            return self._wide(dtype) if asked in (None, Type.F16) else asked
        kind = self.matrix
        if kind in _BELOW_8_BITS and spec.name in _TABLES:
            kind = Type.Q8_0
        elif kind in _BELOW_8_BITS and spec.name == "output.weight":
            kind = Type.Q6_K
        return whole_blocks(kind, spec.shape[-1])

    def _wide(self, dtype: str | None) -> Type:
        """The type of a matrix whose inputs exceed float16's range. A product with float16 weights may round its inputs
        to float16, and quantized blocks have float16 scales. bfloat16 is the type of most checkpoints; for others it is
        as precise as the quantized types, but not as float16."""
        return Type.F32 if self.matrix == Type.F32 or (self.matrix == Type.F16 and dtype != "BF16") else Type.BF16

    @property
    def name(self) -> str:
        return self.matrix.name.lower()

    @property
    def needs_ggml(self) -> bool:
        """Whether ggml itself must quantize rows: the gguf package has no k-quants."""
        return self.matrix in _BELOW_8_BITS or self.fc in _BELOW_8_BITS


_TABLES = {"token_embd.weight", *(name for kind in KINDS for name in kind.tables)}

OUTTYPES = {
    outtype.name: outtype
    for outtype in (
        Outtype(Type.F32, LlamaFileType.ALL_F32),
        Outtype(Type.F16, LlamaFileType.MOSTLY_F16),
        Outtype(Type.BF16, LlamaFileType.MOSTLY_BF16),
        Outtype(Type.Q8_0, LlamaFileType.MOSTLY_Q8_0),
        Outtype(Type.Q6_K, LlamaFileType.MOSTLY_Q6_K),
        Outtype(Type.Q5_K, LlamaFileType.MOSTLY_Q5_K_S),
        Outtype(Type.Q5_0, LlamaFileType.MOSTLY_Q5_0),
        Outtype(Type.Q4_K, LlamaFileType.MOSTLY_Q4_K_S),
        Outtype(Type.Q4_0, LlamaFileType.MOSTLY_Q4_0),
        Outtype(Type.IQ4_NL, LlamaFileType.MOSTLY_IQ4_NL),
        Outtype(Type.Q3_K, LlamaFileType.MOSTLY_Q3_K_S),
        Outtype(Type.Q2_K, LlamaFileType.MOSTLY_Q2_K),
    )
}


def find_outtype(name: str, fc_type: str | None = None) -> Outtype:
    """The choice of these names of OUTTYPES and FC_TYPES. Raises ConvertError for an unknown one."""
    if name not in OUTTYPES:
        raise ConvertError(f"unknown outtype {name!r}", field="outtype", hint=f"use one of {', '.join(OUTTYPES)}")
    if fc_type is None:
        return OUTTYPES[name]
    if fc_type not in FC_TYPES:
        raise ConvertError(f"fc cannot be {fc_type!r}", field="fc_type", hint=f"use one of {', '.join(FC_TYPES)}")
    return replace(OUTTYPES[name], fc=OUTTYPES[fc_type].matrix)


def quantized(rows: npt.NDArray[np.float32], kind: Type, name: str, ggml: RowQuantizer | None) -> npt.NDArray[Any]:
    """Float32 rows of the tensor `name` in the type `kind`. Raises ConvertError if values are out of its range, or no
    numbers: a drafter with a single one may guess nothing, which no error would show."""
    if not np.isfinite(rows).all():
        raise ConvertError(
            f"tensor {name!r} has values that are NaN or infinite in float32",
            field=name,
            hint="its weights are damaged: download them again, or ask who published them",
        )
    if kind in _BELOW_8_BITS or kind == Type.Q5_1:
        assert ggml
        return ggml(kind, rows)
    with np.errstate(over="ignore"):
        data: npt.NDArray[Any] = quants.quantize(rows, kind)
    if data.dtype == np.float16 and np.isinf(data).any():
        raise ConvertError(
            f"tensor {name!r} has values beyond float16's range", field=name, hint="use --outtype bf16 or f32"
        )
    return data


def whole_blocks(kind: Type, columns: int) -> Type:
    """`kind` if rows of `columns` are whole blocks of it; else a type of smaller blocks, or f16."""
    if columns % GGML_QUANT_SIZES[kind][0]:
        kind = _SMALLER_BLOCKS.get(kind, kind)
    return Type.F16 if columns % GGML_QUANT_SIZES[kind][0] else kind
