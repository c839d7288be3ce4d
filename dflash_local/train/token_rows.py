"""Rows of embeddings and of the output projection, dequantized as they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dflash_local.convert.gguf_metadata import StoredGgufTensor
from dflash_local.errors import ModelError
from dflash_local.train.drafter_file import D2T, EMBEDDINGS, HEAD, MASK_ROW, DrafterFile


@dataclass(frozen=True)
class TokenRows:
    """A table with a row for each token; `places[token]` is its row, -1: it has none. None: row = token."""

    stored: StoredGgufTensor
    places: npt.NDArray[np.int64] | None = None

    @property
    def n_rows(self) -> int:
        return self.stored.n_rows

    def of(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The rows of tokens that have one, [n, n_embd]."""
        rows = tokens if self.places is None else self.places[tokens]
        raw = np.memmap(
            self.stored.path, np.uint8, "r", self.stored.offset, (self.stored.n_rows, self.stored.row_bytes)
        )
        found = self.stored.dequantized(np.ascontiguousarray(raw[rows]))
        return found.reshape(len(rows), self.stored.shape[-1])

    def tokens(self, n_vocab: int) -> npt.NDArray[np.int64]:
        """All tokens that have a row."""
        if self.places is None:
            return np.arange(min(n_vocab, self.n_rows))
        return np.flatnonzero(self.places >= 0)


def embedding_rows(file: DrafterFile, target: Mapping[str, StoredGgufTensor]) -> TokenRows:
    """The drafter's embeddings, or the target's."""
    return TokenRows(file.frozen.get(EMBEDDINGS) or _of(target, EMBEDDINGS))


def head_rows(file: DrafterFile, target: Mapping[str, StoredGgufTensor]) -> TokenRows:
    """The drafter's output projection, perhaps for a reduced vocabulary, or the target's."""
    if HEAD not in file.frozen:
        return TokenRows(target.get(HEAD) or _of(target, EMBEDDINGS))
    if D2T not in file.frozen:
        return TokenRows(file.frozen[HEAD])
    tokens = file.frozen[D2T].rows(0, 1).view(np.int64).reshape(-1)
    places = np.full(file.config.n_vocab, -1, np.int64)
    places[tokens] = np.arange(tokens.size)
    return TokenRows(file.frozen[HEAD], places)


def check_readable(file: DrafterFile | None, target: Mapping[str, StoredGgufTensor]) -> None:
    """Raise ModelError if the fit could not read embeddings, head or output norm: of the drafter to go on from, or of
    the target, whose `target` has all tensors."""
    frozen = {} if file is None else file.frozen
    embeddings = frozen.get(EMBEDDINGS) or _of(target, EMBEDDINGS)
    norm = target.get("output_norm.weight") if file is None else None  # a new drafter begins with it
    for tensor in (embeddings, frozen.get(HEAD) or target.get(HEAD), norm):
        if tensor is not None:
            tensor.dequantized(tensor.rows(0, 1))


def mask_row(file: DrafterFile, embeddings: TokenRows) -> npt.NDArray[np.float32]:
    """The mask token's embedding: the drafter's own, or one of `embeddings`."""
    stored = file.frozen.get(MASK_ROW)
    return embeddings.of(np.array([file.config.mask_token]))[0] if stored is None else stored.numbers().reshape(-1)


def _of(target: Mapping[str, StoredGgufTensor], name: str) -> StoredGgufTensor:
    if name not in target:
        raise ModelError(f"the target holds no tensor {name!r}", field=name)
    return target[name]


def frequent(counts: Mapping[int, int], n_most: int) -> Sequence[int]:
    """The most frequent tokens, the lowest id first among equals."""
    return sorted(sorted(counts), key=lambda token: -counts[token])[:n_most]
