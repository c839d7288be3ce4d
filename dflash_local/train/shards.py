"""Shards: what the target made of the training texts, in files of bounded size.

The plan of the shards follows from the texts alone, so a run that goes on knows which are missing; a damaged one counts
as missing.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dflash_local.errors import ConvertError
from dflash_local.train.open_files import allow_mapped_files
from dflash_local.train.tensors_file import map_tensors, read_notes, write_tensors
from dflash_local.train.written_texts import Text, shows_media


@dataclass(frozen=True)
class Layout:
    """What is stored for each token: `layers` of the target (inputs, counted from 0) of `n_embd` values, and the
    `top_k` likeliest next tokens."""

    layers: tuple[int, ...]
    n_embd: int
    top_k: int

    @property
    def width(self) -> int:
        return len(self.layers) * self.n_embd

    @property
    def token_bytes(self) -> int:
        return 2 * self.width + 8 * self.top_k + 4


@dataclass(frozen=True)
class TappedText:
    """One text of a shard. `tokens` [n] end with the token that ended the answer, if one did; `taps` [n_taps, width]
    bfloat16 as uint16; `ids`, `log_probs` [n_taps, top_k]: what follows each token. n_taps is n or n - 1."""

    tokens: npt.NDArray[np.int32]
    n_prompt: int
    taps: npt.NDArray[np.uint16]
    ids: npt.NDArray[np.int32]
    log_probs: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Shard:
    """The texts from `first` to before `last`; `digest` names their tokens and the layout."""

    path: Path
    first: int
    last: int
    digest: str

    def is_there(self) -> bool:
        """Is the file whole, and of these texts?"""
        try:
            map_tensors(self.path)
            return read_notes(self.path).get("digest") == self.digest
        except (ConvertError, OSError, ValueError):
            return False


def plan_shards(folder: Path, texts: Sequence[Text], layout: Layout, n_bytes: int) -> list[Shard]:
    """Shards of about `n_bytes`, each of at least one text."""
    shards: list[Shard] = []
    first = size = 0
    for index, text in enumerate(texts):
        size += len(text.tokens) * layout.token_bytes
        if size >= n_bytes or index + 1 == len(texts):
            digest = _digest(texts[first : index + 1], layout)
            shards.append(Shard(folder / f"{len(shards):05}.safetensors", first, index + 1, digest))
            first, size = index + 1, 0
    return shards


def _digest(texts: Sequence[Text], layout: Layout) -> str:
    digest = hashlib.sha256(json.dumps([layout.layers, layout.n_embd, layout.top_k]).encode())
    for text in texts:
        digest.update(array("i", [len(text.prompt), len(text.answer), *text.tokens]).tobytes())
        if shows_media(text.prompt):
            digest.update(text.key.encode())
    return digest.hexdigest()


def write_shard(shard: Shard, texts: Sequence[TappedText]) -> None:
    """Raises DFlashError if the disk is full."""
    counts = [[len(text.tokens), text.n_prompt, len(text.taps)] for text in texts]
    write_tensors(
        shard.path,
        {
            "counts": np.array(counts, np.int64),
            "tokens": np.concatenate([text.tokens for text in texts]),
            "taps": np.concatenate([text.taps for text in texts]),
            "ids": np.concatenate([text.ids for text in texts]),
            "log_probs": np.concatenate([text.log_probs for text in texts]),
        },
        {"digest": shard.digest},
    )


def read_shards(shards: Sequence[Shard]) -> list[TappedText]:
    """The texts of all shards. Raises ConvertError, and DFlashError if the process may not open so many files."""
    allow_mapped_files(len(shards))
    return [text for shard in shards for text in read_shard(shard.path)]


def read_shard(path: Path) -> Iterator[TappedText]:
    """The texts of a shard, mapped, not read. Raises ConvertError if the file is damaged."""
    stored = map_tensors(path)
    at = row = 0
    for n_tokens, n_prompt, n_taps in np.asarray(stored["counts"]).tolist():
        rows = slice(row, row + n_taps)
        yield TappedText(
            stored["tokens"][at : at + n_tokens].astype(np.int32),
            n_prompt,
            stored["taps"][rows].view(np.uint16),
            stored["ids"][rows].view(np.int32),
            stored["log_probs"][rows].view(np.float32),
        )
        at, row = at + n_tokens, row + n_taps


def bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
