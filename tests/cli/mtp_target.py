"""The bundled hybrid target with a layer for multi-token prediction (MTP), which upstream's server drafts with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dflash_local.convert.gguf_metadata import read_header, u32
from tests.gguf_files import rewritten, stored

ARCH = "qwen35"
Arrays = dict[str, npt.NDArray[Any]]


def write(source: Path, out: Path, tokens: Sequence[int]) -> Path:
    """`source` (f16, of the Qwen3.5 form) with one more layer, which guesses a token by the one before it, as in the
    text `tokens`."""
    metadata, tensors = read_header(source)
    n_layer, recurrent = metadata[f"{ARCH}.block_count"].data, f"{ARCH}.attention.recurrent_layers"
    keys = {
        f"{ARCH}.block_count": n_layer + 1,
        recurrent: [*metadata[recurrent].data, False],
        f"{ARCH}.nextn_predict_layers": u32(1),
    }
    known = {name.removesuffix(".weight"): stored(tensor) for name, tensor in tensors.items()}
    layer = _layer(known, f"blk.{n_layer - 1}.", tokens)
    return rewritten(source, out, keys, {f"blk.{n_layer}.{name}.weight": values for name, values in layer.items()})


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
