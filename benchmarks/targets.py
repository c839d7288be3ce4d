"""Targets of any type: those of the inflated pairs, and files for other types or the pocket model itself, made once and
kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType

from benchmarks import pairs
from dflash_local import native
from dflash_local.build.upstream import sha256
from dflash_local.convert.gguf_metadata import StoredGgufTensor, read_model, u32
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo import quantizer
from dflash_local.demo.pocket import bundled_pair
from dflash_local.demo.shapes import SHAPES as ALL_SHAPES
from dflash_local.demo.shapes import TYPES as PAIR_TYPES

POCKET = "pocket"  # in place of a shape: the pocket target itself
SHAPES = (POCKET, *(name for name, shape in ALL_SHAPES.items() if not shape.experts and not shape.delta))
# All matrices have one type here; llama-quantize mixes some of these, and uses MXFP4 only for experts.
_ALONE = (
    "mxfp4", "q2_k", "q3_k", "iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_s", "iq1_m", "tq1_0",
    "tq2_0",
)  # fmt: skip
OF_ONE_TYPE = {name: Type[name.upper()] for name in _ALONE}
_FILE_TYPES = {Type.MXFP4: "MXFP4_MOE", Type.Q3_K: "Q3_K_M"}  # where the file's type has another name
TYPES = (*PAIR_TYPES, "bf16", "q4_1", "q5_0", "q5_1", "q4_k_s", "q5_k_m", "q6_k", "iq4_nl", *OF_ONE_TYPE)
_ROWS = 4096  # quantized at once


def make(work: Path | None, shape: str, ftype: str) -> Path:
    """The target in `shape`, one of SHAPES, as `ftype`, one of TYPES; kept in `work` (None: the cache)."""
    if shape != POCKET and ftype in PAIR_TYPES:
        return pairs.make(work, shape, ftype, "dflash").target
    source = bundled_pair().target if shape == POCKET else make(work, shape, "f16")
    if ftype == "f16":
        return source

    def write(path: Path) -> None:
        if ftype in OF_ONE_TYPE:
            _of_one_type(OF_ONE_TYPE[ftype], source, path)
        else:
            native.quantize(source, path, ftype)

    code = Path(__file__).read_bytes() + Path(quantizer.__file__).read_bytes()
    made_of = code + (sha256(source) if shape == POCKET else source.parent.name).encode()
    return pairs.kept(work, f"{shape}-{ftype}-target", made_of, write, ".gguf")


def _of_one_type(kind: Type, source: Path, path: Path) -> None:
    """Write all matrices of the f16 file `source` as `kind`; other tensors stay."""

    def output(tensor: StoredGgufTensor) -> OutputTensor:
        if tensor.type != Type.F16:
            return OutputTensor.of(tensor)

        def chunks() -> Iterator[np.ndarray]:
            for rows in tensor.chunks(_ROWS * tensor.row_bytes):
                yield quantizer._quantize(kind, rows.view(np.float16))

        return OutputTensor(tensor.name, tensor.shape, kind, chunks)

    metadata, tensors = read_model(source)
    metadata["general.file_type"] = u32(LlamaFileType[f"MOSTLY_{_FILE_TYPES.get(kind, kind.name)}"])
    write_gguf(path, metadata, [output(tensor) for tensor in tensors.values()])


@dataclass(frozen=True)
class Matrices:
    """The matrix products of a pass: bytes read, as stored in the file, and multiply-adds of one row, by type.

    `kv_bytes` and `kv_macs`: what attention reads of the KV cache (f16), and multiplies for one row, per cell.
    """

    n_bytes: dict[str, int]
    macs: dict[str, int]
    kv_bytes: int
    kv_macs: int

    @staticmethod
    def of(path: Path) -> Matrices:
        """From a qwen3 target. The token embedding is read by rows, so it counts only if it is also the head."""
        metadata, tensors = read_model(path)
        head = "output.weight" if "output.weight" in tensors else "token_embd.weight"
        matrices = Matrices({}, {}, 0, 0)
        for name, tensor in tensors.items():
            if len(tensor.shape) == 2 and (name == head or name.startswith("blk.")):
                kind = tensor.type.name
                matrices.n_bytes[kind] = matrices.n_bytes.get(kind, 0) + tensor.n_bytes
                matrices.macs[kind] = matrices.macs.get(kind, 0) + int(np.prod(tensor.shape))
        value = {
            key: int(metadata[f"qwen3.{key}"].data)
            for key in ("block_count", "attention.head_count", "attention.head_count_kv", "attention.key_length")
        }
        layers, heads, heads_kv, size = value.values()
        return replace(matrices, kv_bytes=layers * heads_kv * size * 2 * 2, kv_macs=layers * heads * size * 2)
