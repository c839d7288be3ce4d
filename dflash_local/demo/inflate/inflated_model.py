"""InflatedModel: the common base of an inflated target and its drafter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from gguf import GGML_QUANT_VERSION, TokenType

from dflash_local.convert.gguf_metadata import Value, string, u32
from dflash_local.convert.writer import OutputTensor
from dflash_local.demo import quantizer
from dflash_local.demo.inflate.source import Array, SmallModel
from dflash_local.demo.inflate.tensors import Block, Heads, exact_tensor, padded_matrix
from dflash_local.demo.shapes import Experts, Shape
from dflash_local.errors import ModelError

Names = Callable[[str], tuple[str, str | None]]

# The final norm's weight for the constant channel.
PUSH = 1e4


class InflatedModel:
    """The common base of target and drafter. Tensors are f32 here, in file order."""

    experts: Experts | None = None

    def __init__(self, source: SmallModel, shape: Shape, n_layer: int, scale: float = 1.0) -> None:
        """`scale`: factor of the residual stream."""
        self.scale, self.source, self.shape, self.n_layer = scale, source, shape, n_layer
        self.n_embd, self.n_ff, self.n_vocab = (
            source.size("embedding_length"),
            source.size("feed_forward_length"),
            source.n_vocab,
        )
        self.small_head = source.size("attention.key_length")
        self.head = shape.head or self.small_head
        heads, heads_kv = source.size("attention.head_count"), source.size("attention.head_count_kv")
        for key, small, large in (
            ("block_count", source.n_layer, n_layer),
            ("embedding_length", self.n_embd + 1, shape.n_embd),  # one more for the constant channel
            ("attention.head_count_kv", heads_kv, shape.n_head_kv),
            ("vocab_size", self.n_vocab, shape.n_vocab),
        ):
            if small > large:
                raise self._unfit(key, f"{small} > {large}", hint="take a larger shape")
        # A head of q reads the k and v of its group. Real groups come before new ones, and real heads first in their
        # group.
        group, small_group = shape.n_head // shape.n_head_kv, heads // heads_kv
        if small_group > group:
            raise self._unfit(
                "attention.head_count_kv", f"{small_group} heads share one of k and v, in the shape only {group}"
            )
        self.rotated = source.size("rope.dimension_count", self.small_head)
        self.channels, self.sections = self._spread_channels(), self._sections()
        self.kv = Heads(shape.n_head_kv, self.head, range(heads_kv), self.channels)
        self.q = Heads(
            shape.n_head,
            self.head,
            [kv * group + i for kv in range(heads_kv) for i in range(small_group)],
            self.channels,
        )

    def _unfit(self, key: str, why: str, hint: str | None = None) -> ModelError:
        return ModelError(f"{self.source.path.name}: {key} does not fit: {why}", field=key, hint=hint)

    def _spread_channels(self) -> Array:
        """The places of a small head's channels in a large one."""
        small, large, arch = self.small_head, self.head, self.source.arch
        if small == large:
            return np.arange(small)
        if large % small:
            raise self._unfit("attention.key_length", f"heads of {small} cannot become heads of {large}")
        if self.source.size("attention.value_length", small) != small or self.rotated > small:
            raise self._unfit(
                "attention.value_length", "only heads with as many channels for k as for v can be widened"
            )
        for key in self.source.metadata:
            plain = key.endswith((".freq_base", ".dimension_count", ".dimension_sections"))
            if key == f"{arch}.attention.scale" or (key.startswith(f"{arch}.rope.") and not plain):
                raise self._unfit(key, "only heads with plain rotation can be widened")
        times = large // small
        pair = np.arange(self.rotated // 2) * times
        return np.concatenate(
            [pair, self.rotated * times // 2 + pair, self.rotated * times + np.arange(small - self.rotated)]
        )

    def _sections(self) -> list[int] | None:
        """The sections of M-RoPE: the number of rotations for each of a token's positions. None: the model has none.

        In wider heads, either all use the first position, or a third each, interleaved. In text the positions are
        equal, but a rotation without a position would not rotate at all.
        """
        if f"{self.source.arch}.rope.dimension_sections" not in self.source.metadata:
            return None
        small, n = [int(size) for size in self.source.value("rope.dimension_sections").data], self.rotated // 2
        if self.head == self.small_head:
            return small
        large = n * self.head // self.small_head
        if small == [n, 0, 0, 0]:
            return [large, 0, 0, 0]
        if small != [(n + 2) // 3, (n + 1) // 3, n // 3, 0]:
            raise self._unfit("rope.dimension_sections", f"{small} are no thirds of {n}")
        return [(large + 2) // 3, (large + 1) // 3, large // 3, 0]

    def metadata(self, ftype: str) -> dict[str, Value]:
        """The small model's keys with the new sizes and file type."""
        epsilon = "attention.layer_norm_rms_epsilon"
        sizes: dict[str, Any] = {
            "block_count": self.n_layer + self.source.n_mtp,
            "embedding_length": self.shape.n_embd,
            "feed_forward_length": self.shape.n_ff,
            "attention.head_count": self.shape.n_head,
            "attention.head_count_kv": self.shape.n_head_kv,
            "attention.key_length": self.head,
            "attention.value_length": self.head,
            "rope.dimension_count": self.rotated * self.head // self.small_head,
            # The mean of squares is over more channels, and the new ones are zero.
            epsilon: self.source.value(epsilon).data * self.n_embd / self.shape.n_embd * self.scale**2,
            "vocab_size": self.shape.n_vocab,
        }
        if self.sections:
            sizes["rope.dimension_sections"] = self.sections
        result = self.source.metadata | {
            "general.architecture": string(self.source.arch),
            "general.file_type": u32(quantizer.FILE_TYPES[ftype]),
            "general.quantization_version": u32(GGML_QUANT_VERSION),
        }
        for key, size in sizes.items():
            name = f"{self.source.arch}.{key}"
            if name in result:
                result[name] = replace(result[name], data=size)
        new = range(self.n_vocab, self.shape.n_vocab)
        for name, padding in (
            ("tokenizer.ggml.tokens", [f"<unused_{i}>".encode() for i in new]),
            ("tokenizer.ggml.token_type", [int(TokenType.UNUSED)] * len(new)),
            ("tokenizer.ggml.scores", [0.0] * len(new)),
        ):
            if name in result:
                result[name] = replace(result[name], data=[*result[name].data, *padding])
        return result

    def tensors(self) -> Iterator[OutputTensor]:
        """All tensors."""
        raise NotImplementedError

    def norm(self, name: str, source: str | None, constant: float = 0.0) -> OutputTensor:
        """The weights of a norm over the wider stream, all ones without a source; `constant` is the weight of the
        constant channel."""
        small = self.source.tensor(source) if source else None
        gain = np.float32((self.n_embd / self.shape.n_embd) ** 0.5)

        def values() -> Array:
            if small is None:
                return np.ones(self.shape.n_embd)
            out = np.zeros(self.shape.n_embd, np.float32)
            out[: self.n_embd] = small() * gain
            out[self.n_embd] = constant
            return out

        return exact_tensor(name, (self.shape.n_embd,), values)

    def head_norm(self, name: str, source: str | None, gain: float = 1.0) -> OutputTensor:
        small = self.source.tensor(source) if source else None

        def values() -> Array:
            if small is None:
                return np.ones(self.head)
            out = np.zeros(self.head, np.float32)
            out[self.channels] = small() * np.float32(gain)
            return out

        return exact_tensor(name, (self.head,), values)

    def matrix(
        self, name: str, source: str | None, rows: int, columns: int, *, noise: bool = False, scale: float = 1.0
    ) -> OutputTensor:
        """The small matrix, if any, in the upper left corner of a larger one."""
        small = self.source.tensor(source) if source else None
        return padded_matrix(
            name, (rows, columns), lambda: [Block(0, 0, small() * scale)] if small else [], noise=noise
        )

    def heads(
        self, name: str, source: str | None, to: Heads, *, columns: int | None = None, output: bool = False
    ) -> OutputTensor:
        """A projection to heads from `columns` (default: the stream), or with `output` from the heads."""
        small = self.source.tensor(source) if source else None
        size, columns = to.n * to.size, columns or self.shape.n_embd

        def blocks() -> Iterator[Block]:
            if small is None:
                return
            weights = small().T * self.scale if output else small()
            for place, rows in zip(to.places, np.split(weights, len(to.places)), strict=True):
                head = np.zeros((to.size, rows.shape[1]), np.float32)
                head[to.channels] = rows
                yield Block(0, place * to.size, head.T) if output else Block(place * to.size, 0, head)

        shape = (columns, size) if output else (size, columns)
        return padded_matrix(name, shape, lambda: list(blocks()), noise=not output)

    def layer(self, index: int, real: int | None) -> Iterator[OutputTensor]:
        """Layer `index`: the small model's layer `real`, or, if None, one that adds nothing to the stream."""

        def names(part: str) -> tuple[str, str | None]:
            return f"blk.{index}.{part}.weight", None if real is None else f"blk.{real}.{part}.weight"

        for part in ("attn_norm", "ffn_norm"):
            yield self.norm(*names(part))
        yield from self.attention(names)
        yield from self.feed_forward(names)

    def attention(self, names: Names) -> Iterator[OutputTensor]:
        """Attention; `names` returns a tensor's name and, in a real layer, that of the small model's tensor."""
        # The mean of squares over a wider head is smaller by small_head / head. The norm of k undoes that; the norm of
        # q does not, which compensates for the smaller 1/sqrt(head) of the scores.
        yield self.head_norm(*names("attn_q_norm"))
        yield self.head_norm(*names("attn_k_norm"), (self.small_head / self.head) ** 0.5)
        yield self.heads(*names("attn_q"), self.query())
        for part in ("attn_k", "attn_v"):
            yield self.heads(*names(part), self.kv)
        yield self.heads(*names("attn_output"), self.q, output=True)

    def query(self) -> Heads:
        """The heads of the projection to q."""
        return self.q

    def feed_forward(self, names: Names) -> Iterator[OutputTensor]:
        """The part of a layer after attention."""
        if self.n_ff > self.shape.n_ff:
            raise self._unfit("feed_forward_length", f"{self.n_ff} > {self.shape.n_ff}", hint="take a larger shape")
        for part in ("ffn_gate", "ffn_up"):
            yield self.matrix(*names(part), self.shape.n_ff, self.shape.n_embd, noise=True)
        yield self.matrix(*names("ffn_down"), self.shape.n_embd, self.shape.n_ff, scale=self.scale)
