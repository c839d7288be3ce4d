"""InflatedDrafter: a DFlash, DFlash 2 or DSpark drafter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dflash_local.convert.gguf_metadata import Value
from dflash_local.convert.kinds import DFlash2, DSpark, kind_in
from dflash_local.convert.writer import OutputTensor
from dflash_local.demo.inflate.inflated_model import PUSH, InflatedModel
from dflash_local.demo.inflate.source import Array, SmallModel
from dflash_local.demo.inflate.tensors import Block, exact_tensor, padded_matrix
from dflash_local.demo.shapes import Shape
from dflash_local.errors import ModelError


class InflatedDrafter(InflatedModel):
    """A DFlash, DFlash 2 or DSpark drafter. Its real layers come first."""

    def __init__(self, source: SmallModel, shape: Shape, place: Sequence[int], scale: float = 1.0) -> None:
        super().__init__(source, shape, shape.n_layer_drafter, scale)
        self.taps = [int(layer) for layer in source.value("target_layers").data]
        # A tap is the input of a layer that exists.
        if outside := [layer for layer in self.taps if not 0 <= layer < len(place)]:
            raise ModelError(f"{source.path.name}: the target has no layer {outside[0]}", field="dflash.target_layers")
        self.place = place
        self.n_real = source.size("block_count")
        self.kind = kind_in({key.removeprefix("dflash.") for key in source.metadata})

    def metadata(self, ftype: str) -> dict[str, Value]:
        """Like the base, with the taps moved along with the real layers."""
        result = super().metadata(ftype)
        result["dflash.target_layers"] = replace(
            result["dflash.target_layers"], data=[self.place[layer] for layer in self.taps]
        )
        pattern = "dflash.attention.sliding_window_pattern"
        if pattern in result:
            result[pattern] = replace(
                result[pattern], data=[*result[pattern].data, *[False] * (self.n_layer - self.n_real)]
            )
        return result

    def tensors(self) -> Iterator[OutputTensor]:
        small, large, fc = self.n_embd, self.shape.n_embd, self.source.tensor("fc.weight")
        yield padded_matrix(
            "fc.weight",
            (large, len(self.taps) * large),
            lambda: [Block(0, i * large, part) for i, part in enumerate(np.split(fc(), len(self.taps), axis=1))],
        )
        yield self.norm("enc.output_norm.weight", "enc.output_norm.weight")
        yield self.norm("output_norm.weight", "output_norm.weight", PUSH)
        if self.kind is DFlash2:
            rank = self.source.size("selector_rank")
            for name, rows, columns in (
                ("selector_predecessor.weight", self.shape.n_vocab, rank),
                ("selector_successor.weight", self.shape.n_vocab, rank),
                ("selector_hidden.weight", rank, large),
            ):
                yield self.matrix(name, name, rows, columns)
        if self.kind is DSpark:
            yield from self._heads(small, large)
        for index in range(self.n_layer):
            real = index if index < self.n_real else None
            yield from self.layer(index, real)
            if self.kind is DFlash2:
                for part in ("attn_conv", "ffn_conv"):
                    yield from self._convolution(f"blk.{index}.{part}", real is not None, small, large)

    def _heads(self, small: int, large: int) -> Iterator[OutputTensor]:
        """DSpark: two tables over tokens, and the confidence head over [hidden state, row of the first table]."""
        rank = self.source.tensor("markov_w1.weight")().shape[1]
        for name in ("markov_w1.weight", "markov_w2.weight"):
            yield self.matrix(name, name, self.shape.n_vocab, rank)
        confidence = self.source.tensor("conf_proj.weight")

        def widened() -> Array:
            out = np.zeros((1, large + rank), np.float32)
            out[:, :small], out[:, large:] = np.split(confidence().reshape(1, -1), [small], axis=1)
            return out

        yield exact_tensor("conf_proj.weight", (1, large + rank), widened)
        yield exact_tensor("conf_proj.bias", (1,), self.source.tensor("conf_proj.bias"))

    def _convolution(self, name: str, real: bool, small: int, large: int) -> Iterator[OutputTensor]:
        """A DFlash 2 convolution: base [2, taps, channels] plus a projection to [2, taps, channels / group] from the
        stream."""
        size, group = self.source.size("conv_kernel_size"), self.source.size("conv_group_size")
        identity = np.zeros((2, size, large), np.float32)
        identity[:, 0] = 1.0  # for new channels and layers: the block itself, without its neighbours
        if not real:
            yield exact_tensor(f"{name}_base", identity.shape, lambda: identity)
            yield padded_matrix(f"{name}_proj.weight", (2 * size * (large // group), large), list)
            return
        base, projection = self.source.tensor(f"{name}_base"), self.source.tensor(f"{name}_proj.weight")

        def widened_base() -> Array:
            out = identity.copy()
            out[:, :, :small] = base()
            return out

        yield exact_tensor(f"{name}_base", identity.shape, widened_base)
        yield padded_matrix(
            f"{name}_proj.weight",
            (2 * size * (large // group), large),
            lambda: [Block(i * (large // group), 0, part) for i, part in enumerate(np.split(projection(), 2 * size))],
        )
