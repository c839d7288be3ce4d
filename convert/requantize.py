"""Write a drafter GGUF in another type, or with a reduced head, for `dflash-local quantize` and `convert`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type
from gguf import quants
from gguf.constants import GGML_QUANT_VERSION

from dflash_local.errors import ConvertError, ModelError

from .assistant import AssistantConfig
from .config import DrafterConfig
from .gguf_metadata import StoredGgufTensor, Value, read_model, u32
from .kinds import KINDS, Kind
from .names import ARCH
from .outtypes import Outtype, RowQuantizer, quantized
from .tensor_spec import TensorSpec
from .writer import OutputTensor, Progress, write_drafter

OUTPUT, EMBEDDINGS, D2T = "output.weight", "token_embd.weight", "d2t"
# Matrices that keep their type: `fc` multiplies raw hidden states, the others are tiny.
FUSION = "fc.weight"
_KEPT = {FUSION, "layer_fusion.weight", "conf_proj.weight"}
# Tensors with a row for each draft token.
_DRAFT_TABLES = {OUTPUT, "markov_w2.weight"}
_FLOATS = {Type.F32, Type.F16, Type.BF16}
_CHUNK_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class ReducedHead:
    """The tokens that a drafter may propose, and the target whose output projection is used if the drafter has none.
    Other tokens are just not drafted, so no answer changes."""

    tokens: tuple[int, ...]  # rising
    target: Path

    @classmethod
    def of(cls, tokens: Iterable[int], target: Path) -> ReducedHead:
        """From tokens in any order."""
        return cls(tuple(sorted(set(tokens))), target)


def check_source(checkpoint: Path, config: DrafterConfig | AssistantConfig, *, reduces: bool) -> None:
    """Raise ConvertError if `requantize` would refuse what a conversion of this checkpoint writes, gigabytes later;
    `reduces`: it is to have a reduced head."""
    name = checkpoint.resolve().name
    if isinstance(config, AssistantConfig):
        raise ConvertError(
            f"{name} is a {config.title}, and 'quantize' and --draft-vocab are for DFlash drafters",
            field="architectures",
            hint="'dflash-local convert --outtype TYPE' writes it in another type",
        )
    if reduces and config.n_vocab_draft < config.n_vocab:
        raise _reduced_already(name)
    if reduces and config.kind.needs_all_tokens:
        raise _needs_all_tokens(name, config.kind, "architectures")


def _reduced_already(name: str) -> ConvertError:
    return ConvertError(f"{name} has a reduced vocabulary already", field=D2T, hint="give the whole drafter")


def _needs_all_tokens(name: str, kind: Kind | type[Kind], field: str) -> ConvertError:
    assert kind.needs_all_tokens
    part = kind.needs_all_tokens[0]
    return ConvertError(
        f"{name} is a {kind.name} drafter, whose {part} needs all tokens", field=field, hint="leave out --draft-vocab"
    )


def requantize(
    source: Path,
    output: Path,
    outtype: Outtype | None,
    *,
    ggml: RowQuantizer | None = None,
    head: ReducedHead | None = None,
    fuses_anew: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the drafter GGUF `source` as `output` and return its tensor data in bytes.

    `outtype` is the type of the matrices; None keeps them as they are. With `head`, the drafter's vocabulary is reduced
    to its tokens. `fuses_anew`: `fc`, too, gets the type that a conversion to `outtype` gives it, which needs a source
    that was converted by `exact_types`. Of a split file, `source` is the first part; `output` is one file, written in
    full or not at all. Raises ConvertError or ModelError; `field` is the tensor or key to blame.
    """
    metadata, stored = read_model(source)
    if metadata.get("general.architecture", Value(u32(0).type, b"")).data != ARCH.encode():
        raise ConvertError(f"{source.name} is not a drafter of architecture {ARCH!r}", field="general.architecture")
    if outtype and (name := next((name for name, one in stored.items() if _is_quantized(one)), None)):
        raise ConvertError(
            f"{source.name} is quantized already: {name!r} is {stored[name].type.name}", field=name,
            hint="give the drafter in f32, f16 or bf16, or its checkpoint",
        )  # fmt: skip
    tensors = dict(_reduced(stored, head, source.name) if head else _all_rows(stored))
    outputs = [
        _output_tensor(name, rows, _type(name, rows, outtype, fuses_anew=fuses_anew), ggml)
        for name, rows in tensors.items()
    ]
    if outtype:
        metadata["general.file_type"] = u32(outtype.file_type)
        metadata["general.quantization_version"] = u32(GGML_QUANT_VERSION)
    return write_drafter(output, metadata, outputs, progress)


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether its type follows `outtype`."""
    return len(shape) == 2 and name.endswith(".weight") and name not in _KEPT


def _is_quantized(tensor: StoredGgufTensor) -> bool:
    return _is_matrix(tensor.name, tensor.shape) and tensor.type not in _FLOATS


@dataclass(frozen=True)
class _Rows:
    """Some or all rows of a tensor, or a table of numbers (`d2t`)."""

    shape: tuple[int, ...]
    type: Type
    stored: StoredGgufTensor | None = None
    picked: Sequence[int] | None = None
    numbers: npt.NDArray[np.int64] | None = None

    def chunks(self) -> Iterator[npt.NDArray[np.uint8]]:
        """The rows as stored, `[n, row_bytes]`."""
        if self.numbers is not None:
            yield self.numbers.view(np.uint8).reshape(1, -1)
            return
        assert self.stored
        step = max(1, _CHUNK_ELEMENTS // self.shape[-1])
        if self.picked is None:
            yield from self.stored.chunks(step * self.stored.row_bytes)
            return
        for first in range(0, len(self.picked), step):
            yield self.stored.picked_rows(self.picked[first : first + step])


def _all_rows(stored: dict[str, StoredGgufTensor]) -> Iterator[tuple[str, _Rows]]:
    for name, tensor in stored.items():
        yield name, _Rows(tensor.shape, tensor.type, tensor)


def _reduced(stored: dict[str, StoredGgufTensor], head: ReducedHead, name: str) -> Iterator[tuple[str, _Rows]]:
    """The drafter's tensors; those with rows for draft tokens have only the rows of `head.tokens`."""
    if D2T in stored:
        raise _reduced_already(name)
    for kind in KINDS:
        if kind.needs_all_tokens and (tensor := kind.needs_all_tokens[1]) in stored:
            raise _needs_all_tokens(name, kind, tensor)
    projection = stored.get(OUTPUT) or stored.get(EMBEDDINGS) or _target_projection(head.target)
    if not head.tokens or not 0 <= head.tokens[0] <= head.tokens[-1] < projection.n_rows:
        raise ConvertError(f"the tokens must be of 0 to {projection.n_rows - 1}", field=D2T)
    for tensor_name, rows in _all_rows({**stored, OUTPUT: projection}):
        if tensor_name in _DRAFT_TABLES:
            rows = replace(rows, shape=(len(head.tokens), rows.shape[-1]), picked=head.tokens)
        yield tensor_name, rows
    numbers = np.array(head.tokens, np.int64)
    yield D2T, _Rows(numbers.shape, Type.I64, numbers=numbers)


def _target_projection(target: Path) -> StoredGgufTensor:
    _, tensors = read_model(target)
    projection = tensors.get(OUTPUT) or tensors.get(EMBEDDINGS)
    if projection is None:
        raise ModelError(f"{target.name} holds no output projection", field=OUTPUT)
    return projection


def _type(name: str, rows: _Rows, outtype: Outtype | None, *, fuses_anew: bool) -> Type:
    """The type in which a tensor is written."""
    if outtype is None or rows.type not in _FLOATS:
        return rows.type
    if name == FUSION and fuses_anew:
        return outtype.of(TensorSpec(name, rows.shape, wide=True), rows.type.name)
    return outtype.of(TensorSpec(name, rows.shape)) if _is_matrix(name, rows.shape) else rows.type


def _output_tensor(name: str, rows: _Rows, kind: Type, ggml: RowQuantizer | None) -> OutputTensor:
    if kind == rows.type:
        return OutputTensor(name, rows.shape, kind, rows.chunks)

    def chunks() -> Iterator[npt.NDArray[np.uint8]]:
        for chunk in rows.chunks():
            yield quantized(quants.dequantize(chunk, rows.type), kind, name, ggml)

    return OutputTensor(name, rows.shape, kind, chunks)
