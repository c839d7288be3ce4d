"""Tensors of an inflated model: the small model's values in their places, zeros or new weights elsewhere."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from gguf import GGMLQuantizationType

from dflash_local.convert.writer import OutputTensor
from dflash_local.demo.inflate.source import Array

CHUNK = 1 << 21  # elements computed at once
OFFSETS = 4  # in the noise
NOISE = 0.02  # standard deviation of the new weights, as in a fresh transformer


@dataclass(frozen=True)
class Heads:
    """The heads of a projection: `n` heads of `size` channels. The small model's heads are at `places`, and their
    channels at `channels` in each."""

    n: int
    size: int
    places: Sequence[int]
    channels: Array


class Block(NamedTuple):
    """Values of a rectangle in a matrix, with its upper left corner at (row, column)."""

    row: int
    column: int
    values: Array


@cache
def _noise() -> Array:
    """The new weights, drawn once and used from one of a few offsets on in each chunk: drawing every weight would take
    longer than quantizing it."""
    return np.random.default_rng(0).standard_normal(2 * CHUNK, dtype=np.float32) * np.float32(NOISE)


@cache
def _same(columns: int, rows: int, offset: int | None) -> Array:
    """A chunk without values of the small model: zeros, or noise from `offset` on. The same array each time, read-only,
    so that a quantizer can keep its bytes: most of a large model is such chunks."""
    if offset is None:
        out = np.broadcast_to(np.float32(0), (rows, columns))
    else:
        out = _noise()[offset : offset + rows * columns].reshape(-1, columns)
    out.flags.writeable = False
    return out


def padded_matrix(
    name: str, shape: tuple[int, ...], blocks: Callable[[], Sequence[Block]], *, noise: bool = False
) -> OutputTensor:
    """A matrix of the given blocks, with zeros or noise elsewhere. A stack [n, rows, columns] counts as one matrix of
    n * rows rows."""
    *stack, columns = shape
    rows = int(np.prod(stack))

    def chunks() -> Iterator[Array]:
        rectangles = blocks()
        step = max(1, CHUNK // columns)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            # The numbers depend on the place alone, not on the order of writing.
            at = zlib.crc32(f"{name}:{start}".encode()) % OFFSETS * (CHUNK // OFFSETS) if noise else None
            inside = [block for block in rectangles if block.row < stop and start < block.row + len(block.values)]
            out = _same(columns, stop - start, at)
            if inside:
                out = out.copy()
            for row, column, values in inside:
                first, last = max(row, start), min(row + values.shape[0], stop)
                out[first - start : last - start, column : column + values.shape[1]] = values[first - row : last - row]
            yield out

    return OutputTensor(name, shape, GGMLQuantizationType.F32, chunks)


def exact_tensor(name: str, shape: tuple[int, ...], values: Callable[[], Array]) -> OutputTensor:
    """A small tensor that stays f32."""
    return OutputTensor(name, shape, GGMLQuantizationType.F32, lambda: [values().astype(np.float32)])
