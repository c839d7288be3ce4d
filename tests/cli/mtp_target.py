"""The bundled hybrid target with a layer for multi-token prediction (MTP), which upstream's server drafts with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

ARCH = "qwen35"
Arrays = dict[str, npt.NDArray[Any]]


def write(source: Path, out: Path, tokens: Sequence[int]) -> Path:
    """`source` (f16, of the Qwen3.5 form) with one more layer, which guesses a token by the one before it, as in the
    text `tokens`."""
    reader = gguf.GGUFReader(source)
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    n_layer, recurrent = fields[f"{ARCH}.block_count"].contents(), f"{ARCH}.attention.recurrent_layers"
    changed = {f"{ARCH}.block_count": n_layer + 1, recurrent: [*fields[recurrent].contents(), False]}
    writer = gguf.GGUFWriter(out, ARCH)
    for key, field in fields.items():
        if key != "general.architecture":
            item = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(key, changed.get(key, field.contents()), field.types[0], item)
    writer.add_nextn_predict_layers(1)
    stored = {tensor.name.removesuffix(".weight"): tensor.data for tensor in reader.tensors}
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for name, values in _layer(stored, f"blk.{n_layer - 1}.", tokens).items():
        writer.add_tensor(f"blk.{n_layer}.{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _layer(stored: Arrays, twin: str, tokens: Sequence[int]) -> Arrays:
    """The layer's tensors. Its attention and MLP have the shapes of `twin`'s, an attention layer, and are small noise.

    The projection is the ridge regression of a token's row in the output matrix on the embedding of the token before.
    """
    rng = np.random.default_rng(0)
    layer: Arrays = {
        name.removeprefix(twin): np.array(data)
        if data.ndim == 1
        else rng.normal(0, 0.002, data.shape).astype(np.float16)
        for name, data in stored.items()
        if name.startswith(twin)
    }
    embeddings, outputs = (stored[name].astype(np.float64) for name in ("token_embd", "output"))
    embeddings /= np.sqrt((embeddings**2).mean(axis=1, keepdims=True) + 1e-6)
    x, y = embeddings[list(tokens[:-1])], (outputs - outputs.mean(axis=0))[list(tokens[1:])]
    n_embd = x.shape[1]
    guess = np.linalg.solve(x.T @ x + 10 * np.eye(n_embd), x.T @ y).T
    ones = np.ones(n_embd, np.float32)
    # It multiplies the embedding and the target's hidden state, one behind the other.
    projection = np.concatenate([guess, np.zeros((n_embd, n_embd))], axis=1).astype(np.float16)
    norms = {f"nextn.{name}": ones for name in ("enorm", "hnorm", "shared_head_norm")}
    return layer | norms | {"nextn.eh_proj": projection}
