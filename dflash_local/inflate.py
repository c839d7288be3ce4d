"""Widen and deepen a small trained pair into one of a real model's shape that computes the same function, up to rounding.

A speed measured on a toy says nothing about real models, and random weights say nothing about acceptance. The inflated pair
accepts like the trained pair that it was made from and costs what a model of its shape costs.

How: the residual stream is padded with zeros, because every projection back into it has zero rows there; norm weights and epsilon
are rescaled for the larger mean. New heads, feed-forward units and layers get random weights but zero output columns. Real layers
keep their order among the new ones, so the tap "input of layer r" becomes the input of the layer that r became. One padded channel
carries a tiny constant that only the final norm sees: it pushes the logits of padded vocabulary rows far down.

Every tensor is computed in chunks of rows while it is written, so memory stays at a few chunks whatever the shape.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, TokenType
from gguf.quants import dequantize

from dflash_local import native
from dflash_local.convert.gguf_metadata import Value, read_metadata
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.errors import ModelError

Array = npt.NDArray[Any]
Progress = Callable[[str, int], None]
Quantizer = Callable[[Path, Path, str], None]

TARGET_ARCH, DRAFTER_ARCH = "qwen3", "dflash"
TYPES = ("f16", "q4_0", "q4_k_m", "q8_0")
CHUNK = 1 << 22  # elements computed at once
NOISE = 0.02  # standard deviation of the new weights, that of a fresh transformer
# The constant channel: its value in the embedding, what the final norm multiplies it by, and the padded head rows' weight on it.
CONSTANT, PUSH, PADDED_ROW = 1e-3, 1e4, -100.0


class Pair(NamedTuple):
    """The files of a target and its drafter."""

    target: Path
    drafter: Path


@dataclass(frozen=True)
class Shape:
    """The size of an inflated pair; the head size stays that of the small pair."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    n_layer_drafter: int


SHAPES = {
    "0.1b": Shape(12, 512, 1536, 8, 4, 8192, 2),
    "0.6b": Shape(28, 1024, 3072, 16, 8, 32000, 5),
    "4b": Shape(36, 2560, 9728, 64, 32, 151936, 5),
    "8b": Shape(36, 4096, 12288, 64, 32, 151936, 5),
}


def inflate(
    small: Pair,
    out_dir: Path,
    shape: Shape,
    ftype: str = "f16",
    *,
    drafter_type: str | None = None,
    quantize: Quantizer = native.quantize,
    progress: Progress = lambda name, n_bytes: None,
) -> Pair:
    """Write `out_dir`/target.gguf and drafter.gguf: the `small` pair in `shape`, quantized to `ftype` (the drafter to `drafter_type`).

    Raises:
        ModelError: a file is damaged, not a qwen3 target and its DFlash drafter, or larger than `shape`; `field` says where.
    """
    target, drafter = _Source(small.target, TARGET_ARCH), _Source(small.drafter, DRAFTER_ARCH)
    place = _places(target.size("block_count"), shape.n_layer)
    out_dir.mkdir(parents=True, exist_ok=True)
    out = Pair(out_dir / "target.gguf", out_dir / "drafter.gguf")
    for path, kind, model in (
        (out.target, ftype, _InflatedTarget(target, shape, place)),
        (out.drafter, drafter_type or ftype, _InflatedDrafter(drafter, shape, place)),
    ):
        tensors = list(model.tensors())
        model.source.check_all_used()
        f16 = path if kind == "f16" else path.with_suffix(".f16.gguf")
        try:
            write_gguf(f16, model.metadata(), tensors, progress)
            if f16 != path:
                quantize(f16, path, kind)
        finally:
            if f16 != path:
                f16.unlink(missing_ok=True)
    return out


def _places(n_real: int, n_all: int) -> list[int]:
    """Where each real layer goes among all, spread evenly; the last real one stays last."""
    return [round((i + 1) * n_all / n_real) - 1 for i in range(n_real)]


class _Source:
    """A small model: its metadata, and its tensors as float32 arrays in row-major shape."""

    def __init__(self, path: Path, arch: str) -> None:
        self.path, self.arch = path, arch
        self.metadata = read_metadata(path)
        found = self.metadata.get("general.architecture")
        if found is None or found.data != arch.encode():
            raise ModelError(f"{path.name}: only a {arch} model can be inflated here", field="general.architecture")
        self._tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
        self._used: set[str] = set()

    def size(self, key: str) -> int:
        """An integer of this architecture."""
        return int(self.value(key).data)

    def value(self, key: str) -> Value:
        name = f"{self.arch}.{key}"
        if name not in self.metadata:
            raise ModelError(f"{self.path.name} lacks the key {name!r}", field=name)
        return self.metadata[name]

    @property
    def n_vocab(self) -> int:
        return len(self.metadata["tokenizer.ggml.tokens"].data)

    def has(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> Callable[[], Array]:
        """A reader of the tensor, which may run later and often; a tensor that is missing is an error now."""
        if name not in self._tensors:
            raise ModelError(f"{self.path.name} lacks the tensor {name!r}", field=name)
        self._used.add(name)
        tensor = self._tensors[name]
        return lambda: np.asarray(dequantize(tensor.data, tensor.tensor_type))

    def check_all_used(self) -> None:
        """A tensor that nobody asked for would be lost without a word."""
        if unknown := sorted(self._tensors.keys() - self._used):
            raise ModelError(f"{self.path.name}: the tensor {unknown[0]!r} cannot be inflated", field=unknown[0])


class _Block(NamedTuple):
    """Values for a rectangle of a matrix whose upper left corner is (row, column)."""

    row: int
    column: int
    values: Array


def _matrix(name: str, rows: int, columns: int, blocks: Callable[[], Sequence[_Block]], *, noise: bool = False) -> OutputTensor:
    """An f16 matrix [rows, columns] of the given blocks, and of zeros or noise elsewhere."""

    def chunks() -> Iterator[Array]:
        rng = np.random.default_rng(zlib.crc32(name.encode()))  # the same weights whatever else is written
        known = blocks()
        step = max(1, CHUNK // columns)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            if noise:
                out = (rng.standard_normal((stop - start, columns), dtype=np.float32) * NOISE).astype(np.float16)
            else:
                out = np.zeros((stop - start, columns), np.float16)
            for row, column, values in known:
                first, last = max(row, start), min(row + values.shape[0], stop)
                if first < last:
                    out[first - start : last - start, column : column + values.shape[1]] = values[first - row : last - row]
            yield out

    return OutputTensor(name, (rows, columns), GGMLQuantizationType.F16, chunks)


def _exact(name: str, shape: tuple[int, ...], values: Callable[[], Array]) -> OutputTensor:
    """A small f32 tensor."""
    return OutputTensor(name, shape, GGMLQuantizationType.F32, lambda: [values().astype(np.float32)])


class _Inflated:
    """What target and drafter have in common."""

    def __init__(self, source: _Source, shape: Shape, n_layer: int) -> None:
        self.source, self.shape, self.n_layer = source, shape, n_layer
        self.n_embd, self.n_vocab = source.size("embedding_length"), source.n_vocab
        self.head = source.size("attention.key_length")
        heads, heads_kv = source.size("attention.head_count"), source.size("attention.head_count_kv")
        for key, small, large in (
            ("block_count", source.size("block_count"), n_layer),
            ("embedding_length", self.n_embd + 1, shape.n_embd),  # one more for the constant channel
            ("feed_forward_length", source.size("feed_forward_length"), shape.n_ff),
            ("attention.head_count", heads, shape.n_head),
            ("vocab_size", self.n_vocab, shape.n_vocab),
        ):
            if small > large:
                raise ModelError(f"{source.path.name}: {key} does not fit: {small} > {large}", field=key, hint="take a larger shape")
        if heads * shape.n_head_kv != heads_kv * shape.n_head:
            raise ModelError(
                f"{source.path.name}: {heads}/{heads_kv} heads cannot become {shape.n_head}/{shape.n_head_kv}: the ratio must stay",
                field="attention.head_count_kv",
            )

    def metadata(self) -> dict[str, Value]:
        """The small model's keys with the new sizes."""
        epsilon = "attention.layer_norm_rms_epsilon"
        sizes: dict[str, Any] = {
            "block_count": self.n_layer,
            "embedding_length": self.shape.n_embd,
            "feed_forward_length": self.shape.n_ff,
            "attention.head_count": self.shape.n_head,
            "attention.head_count_kv": self.shape.n_head_kv,
            # The mean of squares is over more channels, all new ones zero.
            epsilon: self.source.value(epsilon).data * self.n_embd / self.shape.n_embd,
            "vocab_size": self.shape.n_vocab,
        }
        result = {**self.source.metadata, "general.architecture": Value(GGUFValueType.STRING, self.source.arch)}
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

    def norm(self, name: str, source: str | None, constant: float = 0.0) -> OutputTensor:
        """A norm over the wider stream, of ones without a source; `constant` is its weight on the constant channel."""
        small = self.source.tensor(source) if source else None
        gain = np.float32((self.n_embd / self.shape.n_embd) ** 0.5)

        def values() -> Array:
            if small is None:
                return np.ones(self.shape.n_embd)
            out = np.zeros(self.shape.n_embd, np.float32)
            out[: self.n_embd] = small() * gain
            out[self.n_embd] = constant
            return out

        return _exact(name, (self.shape.n_embd,), values)

    def head_norm(self, name: str, source: str | None) -> OutputTensor:
        """A norm over one head, whose size stays."""
        return _exact(name, (self.head,), self.source.tensor(source) if source else lambda: np.ones(self.head))

    def matrix(self, name: str, source: str | None, rows: int, columns: int, *, noise: bool = False) -> OutputTensor:
        """The small matrix, if there is one, in the upper left corner of a larger one."""
        small = self.source.tensor(source) if source else None
        return _matrix(name, rows, columns, lambda: [_Block(0, 0, small())] if small else [], noise=noise)

    def layer(self, index: int, real: int | None) -> Iterator[OutputTensor]:
        """Layer `index`: the small model's layer `real`, or, if None, one that adds nothing to the stream."""
        n_embd, n_q, n_kv = self.shape.n_embd, self.shape.n_head * self.head, self.shape.n_head_kv * self.head

        def names(part: str) -> tuple[str, str | None]:
            return f"blk.{index}.{part}.weight", None if real is None else f"blk.{real}.{part}.weight"

        for part in ("attn_norm", "ffn_norm"):
            yield self.norm(*names(part))
        for part in ("attn_q_norm", "attn_k_norm"):
            yield self.head_norm(*names(part))
        for part, rows in (("attn_q", n_q), ("attn_k", n_kv), ("attn_v", n_kv), ("ffn_gate", self.shape.n_ff), ("ffn_up", self.shape.n_ff)):
            yield self.matrix(*names(part), rows, n_embd, noise=True)
        for part, columns in (("attn_output", n_q), ("ffn_down", self.shape.n_ff)):
            yield self.matrix(*names(part), n_embd, columns)


class _InflatedTarget(_Inflated):
    def __init__(self, source: _Source, shape: Shape, place: Sequence[int]) -> None:
        super().__init__(source, shape, shape.n_layer)
        self.real = {index: i for i, index in enumerate(place)}

    def tensors(self) -> Iterator[OutputTensor]:
        """All tensors in file order."""
        n_vocab, n_embd, constant = self.shape.n_vocab, self.shape.n_embd, self.n_embd
        embedding = self.source.tensor("token_embd.weight")
        head = self.source.tensor("output.weight") if self.source.has("output.weight") else embedding  # tied: the head gets its own copy
        yield _matrix(
            "token_embd.weight",
            n_vocab,
            n_embd,
            lambda: [_Block(0, 0, embedding()), _Block(0, constant, np.full((n_vocab, 1), CONSTANT))],
        )
        yield _matrix(
            "output.weight",
            n_vocab,
            n_embd,
            lambda: [_Block(0, 0, head()), _Block(self.n_vocab, constant, np.full((n_vocab - self.n_vocab, 1), PADDED_ROW))],
        )
        yield self.norm("output_norm.weight", "output_norm.weight", PUSH)
        for index in range(self.n_layer):
            yield from self.layer(index, self.real.get(index))


class _InflatedDrafter(_Inflated):
    """A DFlash drafter, or a DFlash 2 one if it has a selector. Its real layers come first."""

    def __init__(self, source: _Source, shape: Shape, place: Sequence[int]) -> None:
        super().__init__(source, shape, shape.n_layer_drafter)
        self.taps = [int(layer) for layer in source.value("target_layers").data]
        # A drafter taps the input of a layer; the input of none beyond the last exists.
        if outside := [layer for layer in self.taps if not 0 <= layer < len(place)]:
            raise ModelError(f"{source.path.name}: the target has no layer {outside[0]}", field="dflash.target_layers")
        self.place = place
        self.n_real = source.size("block_count")
        self.is_dflash2 = source.has("selector_hidden.weight")

    def metadata(self) -> dict[str, Value]:
        """As the base, with the taps moved to where the real layers went."""
        result = super().metadata()
        result["dflash.target_layers"] = replace(result["dflash.target_layers"], data=[self.place[layer] for layer in self.taps])
        pattern = "dflash.attention.sliding_window_pattern"
        if pattern in result:
            result[pattern] = replace(result[pattern], data=[*result[pattern].data, *[False] * (self.n_layer - self.n_real)])
        return result

    def tensors(self) -> Iterator[OutputTensor]:
        """All tensors in file order."""
        small, large, fc = self.n_embd, self.shape.n_embd, self.source.tensor("fc.weight")
        yield _matrix(
            "fc.weight",
            large,
            len(self.taps) * large,
            lambda: [_Block(0, i * large, part) for i, part in enumerate(np.split(fc(), len(self.taps), axis=1))],
        )
        yield self.norm("enc.output_norm.weight", "enc.output_norm.weight")
        yield self.norm("output_norm.weight", "output_norm.weight", PUSH)
        if self.is_dflash2:
            rank = self.source.size("selector_rank")
            for name, rows, columns in (
                ("selector_predecessor.weight", self.shape.n_vocab, rank),
                ("selector_successor.weight", self.shape.n_vocab, rank),
                ("selector_hidden.weight", rank, large),
            ):
                yield self.matrix(name, name, rows, columns)
        for index in range(self.n_layer):
            real = index if index < self.n_real else None
            yield from self.layer(index, real)
            if self.is_dflash2:
                for part in ("attn_conv", "ffn_conv"):
                    yield from self._convolution(f"blk.{index}.{part}", real is not None, small, large)

    def _convolution(self, name: str, real: bool, small: int, large: int) -> Iterator[OutputTensor]:
        """A DFlash 2 convolution: base [2, taps, channels] plus a projection to [2, taps, channels / group] from the stream."""
        size, group = self.source.size("conv_kernel_size"), self.source.size("conv_group_size")
        identity = np.zeros((2, size, large), np.float32)
        identity[:, 0] = 1.0  # what the new channels and layers get: the block itself, nothing of its neighbours
        if not real:
            yield _exact(f"{name}_base", identity.shape, lambda: identity)
            yield _matrix(f"{name}_proj.weight", 2 * size * (large // group), large, list)
            return
        base, projection = self.source.tensor(f"{name}_base"), self.source.tensor(f"{name}_proj.weight")

        def widened_base() -> Array:
            out = identity.copy()
            out[:, :, :small] = base()
            return out

        yield _exact(f"{name}_base", identity.shape, widened_base)
        yield _matrix(
            f"{name}_proj.weight",
            2 * size * (large // group),
            large,
            lambda: [_Block(i * (large // group), 0, part) for i, part in enumerate(np.split(projection(), 2 * size))],
        )
