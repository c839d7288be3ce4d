"""GGUF files with other token embeddings or keys."""

from __future__ import annotations

from pathlib import Path

from gguf import GGMLQuantizationType

from dflash_local import native
from dflash_local.convert.gguf_metadata import StoredGgufTensor, Value, read_header
from dflash_local.convert.writer import OutputTensor
from tests.gguf_files import rewritten

TABLE = "token_embd.weight"


def with_table(source: Path, destination: Path, *, embeddings: str | None = None, **keys: Value) -> Path:
    """A copy of a model with its token embeddings in another type, such as "Q6_K", and with values of other keys of its
    architecture; returns `destination`."""
    metadata, tensors = read_header(source)
    architecture = metadata["general.architecture"].data.decode()
    changed = {f"{architecture}.{key}": value for key, value in keys.items()}
    assert changed.keys() <= metadata.keys()
    table = {TABLE: _requantized(tensors[TABLE], GGMLQuantizationType[embeddings])} if embeddings else {}
    return rewritten(source, destination, changed, table)


def _requantized(tensor: StoredGgufTensor, kind: GGMLQuantizationType) -> OutputTensor:
    data = native.quantize_rows(kind, tensor.numbers())
    return OutputTensor(tensor.name, tensor.shape, kind, lambda: [data])
