"""GGUF files with other token embeddings or keys."""

from __future__ import annotations

from pathlib import Path

from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from dflash_local import native
from dflash_local.convert.gguf_metadata import StoredGgufTensor, Value, read_header
from dflash_local.convert.writer import OutputTensor, write_gguf

TABLE = "token_embd.weight"


def rewritten(source: Path, destination: Path, *, embeddings: str | None = None, **keys: Value) -> Path:
    """A copy of a model with its token embeddings in another type, such as "Q6_K", and with values of other keys of its
    architecture; returns `destination`."""
    metadata, tensors = read_header(source)
    architecture = metadata["general.architecture"].data
    prefix = architecture.decode() if isinstance(architecture, bytes) else architecture
    changed = {f"{prefix}.{key}": value for key, value in keys.items()}
    assert changed.keys() <= metadata.keys()
    outputs = [
        _requantized(tensor, GGMLQuantizationType[embeddings])
        if embeddings is not None and name == TABLE
        else OutputTensor(name, tensor.shape, tensor.type, tensor.chunks)
        for name, tensor in tensors.items()
    ]
    write_gguf(destination, metadata | changed, outputs, lambda name, n_bytes: None)
    return destination


def _requantized(tensor: StoredGgufTensor, kind: GGMLQuantizationType) -> OutputTensor:
    data = native.quantize_rows(kind, dequantize(tensor.rows(0, tensor.n_rows), tensor.type))
    return OutputTensor(tensor.name, tensor.shape, kind, lambda: [data])
