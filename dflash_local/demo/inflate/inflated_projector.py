"""InflatedProjector: a projector of the kind qwen3vl_merger, with a vision tower of a real one's size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType

from dflash_local.convert.gguf_metadata import Value
from dflash_local.convert.writer import OutputTensor
from dflash_local.demo.inflate.inflated_target import CONSTANT
from dflash_local.demo.inflate.source import Array, SmallModel
from dflash_local.demo.inflate.tensors import Block, exact_tensor, padded_matrix
from dflash_local.demo.shapes import Tower
from dflash_local.errors import ModelError

KIND = b"qwen3vl_merger"


class InflatedProjector:
    """The projector's rows are those of the small one, and zeros in the stream's new channels.

    A layer norm subtracts the mean, so padding the tower's stream with zeros would change what it gives. The stream is
    copied instead, several times side by side, which keeps mean and variance: what reads the stream reads the first
    copy, what adds to it adds to all. New heads and units have random weights but zero output columns, and new layers
    add nothing.
    """

    def __init__(self, source: SmallModel, tower: Tower, place: Sequence[int], n_row: int) -> None:
        """`place`: of the real layers among all; `n_row`: width of the rows, which is the target's."""
        self.source, self.tower, self.n_row = source, tower, n_row
        if (kind := source.value("projector_type").data) != KIND:
            raise self._unfit("clip.projector_type", f"{kind.decode()} is not {KIND.decode()}")
        self.n_embd, self.n_ff, self.small_row = (
            source.size(f"vision.{key}") for key in ("embedding_length", "feed_forward_length", "projection_dim")
        )
        self.n_merge = source.size("vision.spatial_merge_size") ** 2
        self.head = self.n_embd // source.size("vision.attention.head_count")
        for key, small, large in (
            ("clip.vision.block_count", source.size("vision.block_count"), tower.n_layer),
            ("clip.vision.feed_forward_length", self.n_ff, tower.n_ff),
            ("clip.vision.projection_dim", self.small_row + 1, n_row),  # one more for the constant channel
        ):
            if small > large:
                raise self._unfit(key, f"{small} > {large}")
        self.copies, rest = divmod(tower.n_embd, self.n_embd)
        if rest:
            raise self._unfit("clip.vision.embedding_length", f"{tower.n_embd} is no multiple of {self.n_embd}")
        self.real = {index: i for i, index in enumerate(place)}
        self.deepstack = [bool(used) for used in source.value("vision.is_deepstack_layers").data]

    def _unfit(self, key: str, why: str) -> ModelError:
        return ModelError(f"{self.source.path.name}: {key} does not fit: {why}", field=key)

    def metadata(self) -> dict[str, Value]:
        """The small projector's keys with the new sizes."""
        sizes: dict[str, Any] = {
            "embedding_length": self.tower.n_embd,
            "feed_forward_length": self.tower.n_ff,
            "projection_dim": self.n_row,
            "block_count": self.tower.n_layer,
            "attention.head_count": self.tower.n_embd // self.head,
            "is_deepstack_layers": [self._has_deepstack(index) for index in range(self.tower.n_layer)],
        }
        return self.source.metadata | {
            f"clip.vision.{key}": replace(self.source.value(f"vision.{key}"), data=size) for key, size in sizes.items()
        }

    def tensors(self) -> Iterator[OutputTensor]:
        for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
            yield self._half(self._copied(name, axis=0))
        yield self._copied("v.patch_embd.bias")
        yield self._copied("v.position_embd.weight")
        yield from self._norm("v.post_ln", "v.post_ln")
        yield from self._merger("mm.0", "mm.2", ("mm.0", "mm.2"), CONSTANT)
        for index in range(self.tower.n_layer):
            yield from self._layer(index, self.real.get(index))

    def _has_deepstack(self, index: int) -> bool:
        return index in self.real and self.deepstack[self.real[index]]

    def _layer(self, index: int, real: int | None) -> Iterator[OutputTensor]:
        new, old = f"v.blk.{index}", None if real is None else f"v.blk.{real}"

        def source(part: str) -> str | None:
            return old and f"{old}.{part}"

        for part in ("ln1", "ln2"):
            yield from self._norm(f"{new}.{part}", source(part))
        wide, n_ff = self.tower.n_embd, self.tower.n_ff
        yield from self._linear(f"{new}.attn_qkv", source("attn_qkv"), (3 * wide, wide), row_parts=3)
        yield from self._linear(f"{new}.attn_out", source("attn_out"), (wide, wide), adds=True)
        yield from self._linear(f"{new}.ffn_up", source("ffn_up"), (n_ff, wide))
        yield from self._linear(f"{new}.ffn_down", source("ffn_down"), (wide, n_ff), adds=True)
        if self._has_deepstack(index):
            to, of = f"v.deepstack.{index}", f"v.deepstack.{real}"
            yield from self._norm(f"{to}.norm", f"{of}.norm", self.n_merge)
            yield from self._merger(f"{to}.fc1", f"{to}.fc2", (f"{of}.fc1", f"{of}.fc2"))

    def _merger(
        self, first: str, second: str, sources: tuple[str, str], constant: float = 0.0
    ) -> Iterator[OutputTensor]:
        """From merged patches to rows; `constant` is the row's constant channel."""
        merged = self.n_merge * self.tower.n_embd
        yield from self._linear(first, sources[0], (merged, merged), column_parts=self.n_merge)
        weight, bias = self._linear(second, sources[1], (self.n_row, merged), noise=False)
        yield weight

        def with_constant() -> Array:
            (values,) = bias.chunks()
            return np.concatenate([values[: self.small_row], [constant], values[self.small_row + 1 :]])

        yield exact_tensor(bias.name, bias.shape, with_constant)

    def _linear(
        self,
        name: str,
        source: str | None,
        shape: tuple[int, int],
        *,
        row_parts: int = 1,
        column_parts: int = 1,
        adds: bool = False,
        noise: bool = True,
    ) -> Iterator[OutputTensor]:
        """The small matrix and bias in a larger one, each of its parts in the corner of a larger part; `adds`: to all
        copies of the stream, so that new weights are zero."""
        weight, bias = (self.source.tensor(f"{source}.{kind}") if source else None for kind in ("weight", "bias"))
        rows, columns = shape[0] // row_parts, shape[1] // column_parts
        copies = self.copies if adds else 1

        def blocks() -> Iterator[Block]:
            for i, part in enumerate(np.split(weight(), row_parts) if weight else ()):
                small = part.reshape(len(part), column_parts, -1)
                whole = np.zeros((len(part), column_parts, columns), np.float32)  # no noise beside the first copy
                whole[:, :, : small.shape[2]] = small
                for copy in range(copies):
                    yield Block(i * rows + copy * len(part), 0, whole.reshape(len(part), -1))

        def values() -> Array:
            out = np.zeros((row_parts, rows), np.float32)
            if bias:
                small = np.tile(bias().reshape(row_parts, -1), (1, copies))
                out[:, : small.shape[1]] = small
            return out.reshape(-1)

        yield self._half(padded_matrix(f"{name}.weight", shape, lambda: list(blocks()), noise=noise and not adds))
        yield exact_tensor(f"{name}.bias", (shape[0],), values)

    def _norm(self, name: str, source: str | None, parts: int = 1) -> Iterator[OutputTensor]:
        """A layer norm over `parts` streams; one of a new layer has ones and zeros."""
        for kind, fresh in (("weight", 1.0), ("bias", 0.0)):
            if source:
                yield self._copied(f"{source}.{kind}", f"{name}.{kind}", parts=parts)
            else:
                yield self._filled(f"{name}.{kind}", parts * self.tower.n_embd, fresh)

    def _filled(self, name: str, size: int, value: float) -> OutputTensor:
        return exact_tensor(name, (size,), lambda: np.full(size, value))

    def _copied(self, source: str, name: str | None = None, *, axis: int = -1, parts: int = 1) -> OutputTensor:
        """A tensor with its channels, along `axis`, as often as the stream has them; a vector may be of `parts`
        streams."""
        small = self.source.tensor(source)

        def values() -> Array:
            found = small()
            if parts > 1:
                return np.tile(found.reshape(parts, -1), self.copies).reshape(-1)
            return np.concatenate([found] * self.copies, axis)

        return exact_tensor(name or source, values().shape, values)

    def _half(self, tensor: OutputTensor) -> OutputTensor:
        """The f32 tensor as f16."""

        def chunks() -> Iterator[Array]:
            for rows in tensor.chunks():
                yield rows.astype(np.float16)

        return OutputTensor(tensor.name, tensor.shape, GGMLQuantizationType.F16, chunks)
