"""Widen and deepen a small trained pair into one of a real model's shape that computes the same function, up to
rounding.

A speed measured on a toy says nothing about real models, and random weights say nothing about acceptance. The inflated
pair accepts like the trained pair that it was made from and costs what a model of its shape costs.

How: the residual stream is padded with zeros, because every projection back into it has zero rows there; norm weights
and epsilon are rescaled for the larger mean. New heads, feed-forward units and layers get random weights but zero
output columns. Real layers keep their order among the new ones, so the tap "input of layer r" becomes the input of the
layer that r became. One padded channel carries a tiny constant that only the final norm sees: it pushes the logits of
padded vocabulary rows far down.

A head of d channels becomes one of D by spreading: rotation i of d/2 has the frequency of rotation i * D/d of D/2, so
the pair of channels (i, i + d/2) goes there and the rest stay zero; channels that are not rotated follow those that
are. The norms of q and k make up for the larger mean and for 1/sqrt(D).

A hybrid (qwen35) keeps its order of layers, three of gated delta-net to one of attention: whole groups of four are
added. A delta-net head is padded with zeros, which its L2 norms of q and k do not see; the norm over its output makes
up for the larger mean and for 1/sqrt(D). That output is often so small that the norm's epsilon counts, and there is one
epsilon for the whole model: the streams of both models are scaled until the epsilon that they need is the one that the
output needs.

A MoE target is made of the dense one by copying the feed-forward into every expert: the weights of the experts that a
router picks add up to 1, so any router gives the same sum. Where the feed-forward is larger than an expert,
neighbouring experts hold its parts; they have the same router row, hence the same weight, and are picked together.

Every tensor is computed, and quantized, in chunks of rows while it is written, so memory stays at a few chunks whatever
the shape.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_VERSION, GGMLQuantizationType, GGUFReader, TokenType
from gguf.quants import dequantize

from dflash_local import native
from dflash_local.convert.gguf_metadata import Value, read_metadata, string, u32
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo import quantizer
from dflash_local.errors import DFlashError, ModelError, PairError

Array = npt.NDArray[Any]
Progress = Callable[[str, int], None]
Quantizer = Callable[[Path, Path, str], None]
Names = Callable[[str], tuple[str, str | None]]

TARGET_ARCH, MOE_ARCH, HYBRID_ARCH, DRAFTER_ARCH = "qwen3", "qwen3moe", "qwen35", "dflash"
TYPES = ("f16", "q4_0", "q4_k_m", "q8_0")
CHUNK = 1 << 21  # elements computed at once
NOISE = 0.02  # standard deviation of the new weights, that of a fresh transformer
# The constant channel: its value in the embedding, what the final norm multiplies it by, and the padded head rows'
# weight on it.
CONSTANT, PUSH, PADDED_ROW = 1e-3, 1e4, -100.0


class Pair(NamedTuple):
    """The files of a target and its drafter."""

    target: Path
    drafter: Path


class Experts(NamedTuple):
    """What a MoE target has in place of each feed-forward."""

    n: int
    n_used: int
    n_ff: int  # units of one expert


class DeltaNet(NamedTuple):
    """The gated delta-net layers of a hybrid: heads of q and k, heads of v (a multiple), channels of each."""

    n_head_k: int
    n_head_v: int
    head: int


@dataclass(frozen=True)
class Shape:
    """The size of an inflated pair. With experts, `n_ff` is the drafter's alone. A hybrid pair, and no other, takes one
    with `delta`."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    n_layer_drafter: int
    head: int | None = None  # None: that of the small pair
    experts: Experts | None = None
    delta: DeltaNet | None = None


# The two smallest keep heads and vocabularies small. 4b and 8b are Qwen3's, 27b is Gemma 3 27B's; 35b-a3b has the
# layers, experts and vocabulary of Qwen3.5-35B-A3B and, in every layer, the attention of Qwen3-30B-A3B. hybrid-27b is
# Qwen3.5-27B's, but half of each attention head is rotated; the smaller hybrids are scaled down from it, with three
# value heads to a key head and heads of 128 in the delta-net.
SHAPES = {
    "0.1b": Shape(12, 512, 1536, 8, 4, 8192, 2),
    "0.6b": Shape(28, 1024, 3072, 16, 8, 32000, 5),
    "4b": Shape(36, 2560, 9728, 32, 8, 151936, 5, 128),
    "8b": Shape(36, 4096, 12288, 32, 8, 151936, 5, 128),
    "27b": Shape(62, 5376, 21504, 32, 16, 262144, 5, 128),
    "35b-a3b": Shape(40, 2048, 6144, 32, 4, 248320, 5, 128, Experts(256, 8, 512)),
    "hybrid-0.1b": Shape(12, 512, 1792, 4, 2, 8192, 2, 128, delta=DeltaNet(2, 6, 128)),
    "hybrid-0.6b": Shape(32, 1024, 3584, 4, 2, 32000, 5, 256, delta=DeltaNet(4, 12, 128)),
    "hybrid-4b": Shape(32, 2560, 8704, 12, 4, 151936, 5, 256, delta=DeltaNet(8, 24, 128)),
    "hybrid-27b": Shape(64, 5120, 17408, 24, 4, 248320, 5, 256, delta=DeltaNet(16, 48, 128)),
}


def inflate(
    small: Pair,
    out_dir: Path,
    shape: Shape,
    ftype: str = "f16",
    *,
    drafter_type: str | None = None,
    quantize: Quantizer | None = None,
    progress: Progress = lambda name, n_bytes: None,
) -> Pair:
    """Write `out_dir`/target.gguf and drafter.gguf: the `small` pair in `shape`, as `ftype` (the drafter as
    `drafter_type`).

    Types are those of `quantizer.FILE_TYPES`. Tensors are quantized while they are written; with `quantize` it gets a
    whole f16 file instead, to show that another quantizer's bytes are the same.

    Raises:
        ModelError: a file is damaged, not a target of the kind that `shape` is for (qwen3; qwen35 with a delta-net) or
        not a DFlash
            drafter, or larger than `shape`; `field` says where.
        PairError: the two files do not belong together.
        DFlashError: the disk is too small.
    """
    target, drafter = (
        _Source(small.target, HYBRID_ARCH if shape.delta else TARGET_ARCH),
        _Source(small.drafter, DRAFTER_ARCH),
    )
    _check_pair(target, drafter)
    if shape.delta:
        place = _hybrid_places(target, shape.n_layer)
        hybrid = _InflatedHybrid(target, shape, shape.delta, place)
        models: tuple[_Inflated, ...] = (hybrid, _InflatedDrafter(drafter, shape, place, hybrid.scale))
    else:
        place = _places(target.size("block_count"), shape.n_layer)
        models = (_InflatedTarget(target, shape, place), _InflatedDrafter(drafter, shape, place))
    out = Pair(out_dir / "target.gguf", out_dir / "drafter.gguf")
    files = []
    for path, kind, model in zip(out, (ftype, drafter_type or ftype), models, strict=True):
        written = "f16" if quantize else kind
        n_expert = model.experts.n if model.experts else 0
        tensors = [
            quantizer.quantized(tensor, written, n_layer=model.n_layer, n_expert=n_expert) for tensor in model.tensors()
        ]
        model.source.check_all_used()
        files.append((path, kind, model, tensors))
    out_dir.mkdir(parents=True, exist_ok=True)
    _check_disk(out_dir, sum(tensor.n_bytes for *_, tensors in files for tensor in tensors))
    for path, kind, model, tensors in files:
        if quantize is None or kind == "f16":
            write_gguf(path, model.metadata(kind), tensors, progress)
            continue
        f16 = path.with_suffix(".f16.gguf")
        try:
            write_gguf(f16, model.metadata("f16"), tensors, progress)
            quantize(f16, path, kind)
        finally:
            f16.unlink(missing_ok=True)
    return out


def _check_pair(target: _Source, drafter: _Source) -> None:
    for key, a, b in (
        ("embedding_length", target.size("embedding_length"), drafter.size("embedding_length")),
        ("vocab_size", target.n_vocab, drafter.n_vocab),
    ):
        if a != b:
            raise PairError(
                f"{drafter.path.name} is not a drafter for {target.path.name}: {key} is {b}, not {a}", field=key
            )


def _check_disk(folder: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise DFlashError(
            f"{folder} has {free / 2**30:.1f} GiB free; the pair needs {n_bytes / 2**30:.1f} GiB",
            hint="free some space, or write to another disk",
        )


def _places(n_real: int, n_all: int) -> list[int]:
    """Where each real layer goes among all, spread evenly; the last real one stays last."""
    return [round((i + 1) * n_all / n_real) - 1 for i in range(n_real)]


def _hybrid_places(target: _Source, n_all: int) -> list[int]:
    """As `_places`, whole groups at a time: each layer becomes one of its own kind."""
    n_real, interval = target.size("block_count"), target.size("full_attention_interval")
    recurrent = [(i + 1) % interval != 0 for i in range(n_real)]
    if n_real % interval or n_all % interval or list(target.value("attention.recurrent_layers").data) != recurrent:
        raise ModelError(
            f"{target.path.name}: layers do not come in whole groups of {interval}", field="attention.recurrent_layers"
        )
    return [group * interval + i for group in _places(n_real // interval, n_all // interval) for i in range(interval)]


class _Source:
    """A small model: its metadata, and its tensors as float32 arrays in row-major shape."""

    def __init__(self, path: Path, arch: str) -> None:
        self.path, self.arch = path, arch
        self.metadata = read_metadata(path)
        found = self.metadata.get("general.architecture")
        if found is None or found.data != arch.encode():
            raise ModelError(
                f"{path.name}: only a {arch} model can be inflated to this shape", field="general.architecture"
            )
        native.check_gguf(path)  # from here on all shapes are as the keys say
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


@dataclass(frozen=True)
class _Heads:
    """Where the heads of a projection are: `n` heads of `size` channels, the small model's at `places`, their channels
    at `channels`."""

    n: int
    size: int
    places: Sequence[int]
    channels: Array


class _Block(NamedTuple):
    """Values for a rectangle of a matrix whose upper left corner is (row, column)."""

    row: int
    column: int
    values: Array


@cache
def _noise() -> Array:
    """The new weights. Every chunk takes them from another place: drawing each weight anew would take longer than
    quantizing it."""
    return np.random.default_rng(0).standard_normal(2 * CHUNK, dtype=np.float32) * np.float32(NOISE)


def _matrix(
    name: str, shape: tuple[int, ...], blocks: Callable[[], Sequence[_Block]], *, noise: bool = False
) -> OutputTensor:
    """A matrix of the given blocks, and of zeros or noise elsewhere; a stack of matrices [n, rows, columns] is one of n
    * rows rows."""
    *stack, columns = shape
    rows = int(np.prod(stack))

    def chunks() -> Iterator[Array]:
        known = blocks()
        step = max(1, CHUNK // columns)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            if noise:
                at = zlib.crc32(f"{name}:{start}".encode()) % CHUNK  # the same weights whatever else is written
                out = _noise()[at : at + (stop - start) * columns].reshape(-1, columns).copy()
            else:
                out = np.zeros((stop - start, columns), np.float32)
            for row, column, values in known:
                first, last = max(row, start), min(row + values.shape[0], stop)
                if first < last:
                    out[first - start : last - start, column : column + values.shape[1]] = values[
                        first - row : last - row
                    ]
            yield out

    return OutputTensor(name, shape, GGMLQuantizationType.F32, chunks)


def _exact(name: str, shape: tuple[int, ...], values: Callable[[], Array]) -> OutputTensor:
    """A small tensor that stays f32."""
    return OutputTensor(name, shape, GGMLQuantizationType.F32, lambda: [values().astype(np.float32)])


class _Inflated:
    """What target and drafter have in common. Tensors are f32 here, in file order."""

    experts: Experts | None = None

    def __init__(self, source: _Source, shape: Shape, n_layer: int, scale: float = 1.0) -> None:
        """`scale` is what the residual stream is multiplied by."""
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
            ("block_count", source.size("block_count"), n_layer),
            ("embedding_length", self.n_embd + 1, shape.n_embd),  # one more for the constant channel
            ("attention.head_count_kv", heads_kv, shape.n_head_kv),
            ("vocab_size", self.n_vocab, shape.n_vocab),
        ):
            if small > large:
                raise self._unfit(key, f"{small} > {large}", hint="take a larger shape")
        # A head of q reads the head of k and v of its group: real heads come first in their group, real groups first of
        # all.
        group, small_group = shape.n_head // shape.n_head_kv, heads // heads_kv
        if small_group > group:
            raise self._unfit(
                "attention.head_count_kv", f"{small_group} heads share one of k and v, in the shape only {group}"
            )
        self.rotated = self._value("rope.dimension_count", self.small_head)
        self.channels, self.sections = self._spread_channels(), self._sections()
        self.kv = _Heads(shape.n_head_kv, self.head, range(heads_kv), self.channels)
        self.q = _Heads(
            shape.n_head,
            self.head,
            [kv * group + i for kv in range(heads_kv) for i in range(small_group)],
            self.channels,
        )

    def _unfit(self, key: str, why: str, hint: str | None = None) -> ModelError:
        return ModelError(f"{self.source.path.name}: {key} does not fit: {why}", field=key, hint=hint)

    def _value(self, key: str, default: int) -> int:
        return self.source.size(key) if f"{self.source.arch}.{key}" in self.source.metadata else default

    def _spread_channels(self) -> Array:
        """Where a small head's channels go in a large one."""
        small, large, arch = self.small_head, self.head, self.source.arch
        if small == large:
            return np.arange(small)
        if large % small:
            raise self._unfit("attention.key_length", f"heads of {small} cannot become heads of {large}")
        if self._value("attention.value_length", small) != small or self.rotated > small:
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
        """How many rotations follow each of a token's positions, if it has more than one: all the first, or a third
        each, in turns.

        In text they are all the same, but a rotation that follows none would not turn.
        """
        if f"{self.source.arch}.rope.dimension_sections" not in self.source.metadata:
            return None
        small, n = [int(size) for size in self.source.value("rope.dimension_sections").data], self.rotated // 2
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
            "block_count": self.n_layer,
            "embedding_length": self.shape.n_embd,
            "feed_forward_length": self.shape.n_ff,
            "attention.head_count": self.shape.n_head,
            "attention.head_count_kv": self.shape.n_head_kv,
            "attention.key_length": self.head,
            "attention.value_length": self.head,
            "rope.dimension_count": self.rotated * self.head // self.small_head,
            # The mean of squares is over more channels, all new ones zero.
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

    def head_norm(self, name: str, source: str | None, gain: float = 1.0) -> OutputTensor:
        """A norm over one head."""
        small = self.source.tensor(source) if source else None

        def values() -> Array:
            if small is None:
                return np.ones(self.head)
            out = np.zeros(self.head, np.float32)
            out[self.channels] = small() * np.float32(gain)
            return out

        return _exact(name, (self.head,), values)

    def matrix(
        self, name: str, source: str | None, rows: int, columns: int, *, noise: bool = False, scale: float = 1.0
    ) -> OutputTensor:
        """The small matrix, if there is one, in the upper left corner of a larger one."""
        small = self.source.tensor(source) if source else None
        return _matrix(name, (rows, columns), lambda: [_Block(0, 0, small() * scale)] if small else [], noise=noise)

    def heads(
        self, name: str, source: str | None, to: _Heads, *, columns: int | None = None, output: bool = False
    ) -> OutputTensor:
        """A projection to heads (of `columns`, by default of the stream), or of the heads' output."""
        small = self.source.tensor(source) if source else None
        size, columns = to.n * to.size, columns or self.shape.n_embd

        def blocks() -> Iterator[_Block]:
            if small is None:
                return
            weights = small().T * self.scale if output else small()
            for place, rows in zip(to.places, np.split(weights, len(to.places)), strict=True):
                head = np.zeros((to.size, rows.shape[1]), np.float32)
                head[to.channels] = rows
                yield _Block(0, place * to.size, head.T) if output else _Block(place * to.size, 0, head)

        shape = (columns, size) if output else (size, columns)
        return _matrix(name, shape, lambda: list(blocks()), noise=not output)

    def layer(self, index: int, real: int | None) -> Iterator[OutputTensor]:
        """Layer `index`: the small model's layer `real`, or, if None, one that adds nothing to the stream."""

        def names(part: str) -> tuple[str, str | None]:
            return f"blk.{index}.{part}.weight", None if real is None else f"blk.{real}.{part}.weight"

        for part in ("attn_norm", "ffn_norm"):
            yield self.norm(*names(part))
        yield from self.attention(names)
        yield from self.feed_forward(names)

    def attention(self, names: Names) -> Iterator[OutputTensor]:
        """Attention; `names` gives a tensor's name and, in a real layer, its small one's."""
        # The mean of squares over a wider head is smaller by small_head / head: k's norm undoes that, q's lets it make
        # up for 1/sqrt(head).
        yield self.head_norm(*names("attn_q_norm"))
        yield self.head_norm(*names("attn_k_norm"), (self.small_head / self.head) ** 0.5)
        yield self.heads(*names("attn_q"), self.query())
        for part in ("attn_k", "attn_v"):
            yield self.heads(*names(part), self.kv)
        yield self.heads(*names("attn_output"), self.q, output=True)

    def query(self) -> _Heads:
        """What the projection to q has."""
        return self.q

    def feed_forward(self, names: Names) -> Iterator[OutputTensor]:
        """The part of a layer after attention."""
        if self.n_ff > self.shape.n_ff:
            raise self._unfit("feed_forward_length", f"{self.n_ff} > {self.shape.n_ff}", hint="take a larger shape")
        for part in ("ffn_gate", "ffn_up"):
            yield self.matrix(*names(part), self.shape.n_ff, self.shape.n_embd, noise=True)
        yield self.matrix(*names("ffn_down"), self.shape.n_embd, self.shape.n_ff, scale=self.scale)


class _InflatedTarget(_Inflated):
    def __init__(self, source: _Source, shape: Shape, place: Sequence[int], scale: float = 1.0) -> None:
        super().__init__(source, shape, shape.n_layer, scale)
        self.real = {index: i for i, index in enumerate(place)}
        self.experts = shape.experts

    def metadata(self, ftype: str) -> dict[str, Value]:
        """As the base; with experts, those of another architecture."""
        result = super().metadata(ftype)
        if self.experts is None:
            return result
        old, new = f"{self.source.arch}.", f"{MOE_ARCH}."
        return {
            **{(new + key.removeprefix(old) if key.startswith(old) else key): value for key, value in result.items()},
            "general.architecture": string(MOE_ARCH),
            f"{new}expert_count": u32(self.experts.n),
            f"{new}expert_used_count": u32(self.experts.n_used),
            f"{new}expert_feed_forward_length": u32(self.experts.n_ff),
        }

    def tensors(self) -> Iterator[OutputTensor]:
        """All tensors."""
        n_vocab, n_embd, constant = self.shape.n_vocab, self.shape.n_embd, self.n_embd
        embedding = self.source.tensor("token_embd.weight")
        # A tied head gets a copy of its own.
        head = self.source.tensor("output.weight") if self.source.has("output.weight") else embedding
        yield _matrix(
            "token_embd.weight",
            (n_vocab, n_embd),
            lambda: [
                _Block(0, 0, embedding() * self.scale),
                _Block(0, constant, np.full((n_vocab, 1), CONSTANT * self.scale)),
            ],
        )
        yield _matrix(
            "output.weight",
            (n_vocab, n_embd),
            lambda: [
                _Block(0, 0, head()),
                _Block(self.n_vocab, constant, np.full((n_vocab - self.n_vocab, 1), PADDED_ROW)),
            ],
        )
        yield self.norm("output_norm.weight", "output_norm.weight", PUSH)
        for index in range(self.n_layer):
            yield from self.layer(index, self.real.get(index))

    def feed_forward(self, names: Names) -> Iterator[OutputTensor]:
        """As the base, or experts: expert e holds part e % n_parts of the small feed-forward's units."""
        if self.experts is None:
            yield from super().feed_forward(names)
            return
        n, n_used, n_ff = self.experts
        n_parts = -(-self.n_ff // n_ff)
        if n % n_parts or n_used % n_parts or n_used > n:
            raise self._unfit(
                "feed_forward_length",
                f"{self.n_ff} units fill {n_parts} experts of {n_ff}, and {n_used} used ones of {n} are no whole "
                "number of those",
            )
        n_embd = self.shape.n_embd
        router = _matrix(names("ffn_gate_inp")[0], (n // n_parts, n_embd), list, noise=True)
        yield _exact(
            router.name, (n, n_embd), lambda: np.repeat(np.concatenate(list(router.chunks())), n_parts, axis=0)
        )

        def copies(part: str, rows: int, columns: int, axis: int) -> OutputTensor:
            name, source = names(f"{part}_exps")[0], names(part)[1]
            small = self.source.tensor(source) if source else None

            def blocks() -> list[_Block]:
                if small is None:
                    return []
                parts = np.array_split(small(), n_parts, axis)
                # A part gets 1 / n_parts of the router's weight.
                return [_Block(e * rows, 0, parts[e % n_parts] * (n_parts if axis else 1)) for e in range(n)]

            return _matrix(name, (n, rows, columns), blocks, noise=axis == 0)

        for part in ("ffn_gate", "ffn_up"):
            yield copies(part, n_ff, n_embd, 0)
        yield copies("ffn_down", n_embd, n_ff, 1)


class _InflatedHybrid(_InflatedTarget):
    """A qwen35 target: gated delta-net layers, every fourth one attention with a gate."""

    def __init__(self, source: _Source, shape: Shape, delta: DeltaNet, place: Sequence[int]) -> None:
        small = DeltaNet(*(source.size(f"ssm.{key}") for key in ("group_count", "time_step_rank", "state_size")))
        # What the square of a head's output shrinks by is what epsilon must shrink by. See state_norm for the output
        # itself.
        scale = small.head / delta.head * (shape.n_embd / source.size("embedding_length")) ** 0.5
        super().__init__(source, shape, place, scale)
        if shape.experts:
            raise self._unfit("expert_count", "the feed-forward of a hybrid stays dense here")
        self.delta, self.interval = delta, source.size("full_attention_interval")
        per_key, small_per_key = delta.n_head_v // delta.n_head_k, small.n_head_v // small.n_head_k
        for key, low, high in (
            ("ssm.group_count", small.n_head_k, delta.n_head_k),
            ("ssm.time_step_rank", small_per_key, per_key),
            ("ssm.state_size", small.head, delta.head),
        ):
            if low > high:
                raise self._unfit(key, f"{low} > {high}", hint="take a larger shape")
        # Value heads stand in turns: the first of every key head, the second of every key head, ...
        n_k, channels = delta.n_head_k, np.arange(small.head)
        keys = list(range(small.n_head_k))
        values = [turn * n_k + key for turn in range(small_per_key) for key in keys]
        mixed = [*keys, *(n_k + i for i in keys), *(2 * n_k + i for i in values)]
        self.mixed = _Heads(2 * n_k + delta.n_head_v, delta.head, mixed, channels)  # q, k and v behind each other
        self.value = _Heads(delta.n_head_v, delta.head, values, channels)
        self.gates = _Heads(delta.n_head_v, 1, values, np.arange(1))

    def metadata(self, ftype: str) -> dict[str, Value]:
        """As the base, with the delta-net's sizes."""
        result = super().metadata(ftype)
        for key, data in (
            ("ssm.group_count", self.delta.n_head_k),
            ("ssm.time_step_rank", self.delta.n_head_v),
            ("ssm.state_size", self.delta.head),
            ("ssm.inner_size", self.delta.n_head_v * self.delta.head),
            ("attention.recurrent_layers", [self.is_recurrent(i) for i in range(self.n_layer)]),
        ):
            name = f"{self.source.arch}.{key}"
            result[name] = replace(result[name], data=data)
        return result

    def is_recurrent(self, index: int) -> bool:
        """Whether a layer is one of delta-net."""
        return (index + 1) % self.interval != 0

    def layer(self, index: int, real: int | None) -> Iterator[OutputTensor]:
        """As the base, with one of the two kinds of attention."""

        def names(part: str) -> tuple[str, str | None]:
            return f"blk.{index}.{part}", None if real is None else f"blk.{real}.{part}"

        def weights(part: str) -> tuple[str, str | None]:
            return names(f"{part}.weight")

        for part in ("attn_norm", "post_attention_norm"):
            yield self.norm(*weights(part))
        yield from self.delta_net(names) if self.is_recurrent(index) else self.attention(weights)
        yield from self.feed_forward(weights)

    def query(self) -> _Heads:
        """Behind each head of q is its gate."""
        return replace(self.q, n=2 * self.q.n, places=[2 * place + i for place in self.q.places for i in (0, 1)])

    def delta_net(self, names: Names) -> Iterator[OutputTensor]:
        """A gated delta-net; `names` gives whole names."""
        yield self.heads(*names("attn_qkv.weight"), self.mixed)
        yield self.heads(*names("attn_gate.weight"), self.value)
        yield self.heads(*names("ssm_conv1d.weight"), self.mixed, columns=self.source.size("ssm.conv_kernel"))
        for part in ("ssm_alpha.weight", "ssm_beta.weight"):
            yield self.heads(*names(part), self.gates)
        yield self.per_head(*names("ssm_dt.bias"), 1.0)
        # With the bias of 1, a quarter of the state is left after each token.
        yield self.per_head(*names("ssm_a"), -1.0)
        yield self.state_norm(*names("ssm_norm.weight"))
        yield self.heads(*names("ssm_out.weight"), self.value, output=True)

    def per_head(self, name: str, source: str | None, new: float) -> OutputTensor:
        """A number for each value head, `new` for new ones."""
        small = self.source.tensor(source) if source else None

        def values() -> Array:
            out = np.full(self.gates.n, new)
            if small is not None:
                out[self.gates.places] = small()
            return out

        return _exact(name, (self.gates.n,), values)

    def state_norm(self, name: str, source: str | None) -> OutputTensor:
        """The norm over a value head's output, which shrinks by `gain` (its scale is 1/sqrt(size)); its root mean
        square does so twice."""
        gain = (len(self.value.channels) / self.value.size) ** 0.5
        small = self.source.tensor(source) if source else None

        def values() -> Array:
            out = np.ones(self.value.size)
            if small is not None:
                out[self.value.channels] = small() * gain
            return out

        return _exact(name, (self.value.size,), values)


class _InflatedDrafter(_Inflated):
    """A DFlash drafter, or a DFlash 2 one if it has a selector. Its real layers come first."""

    def __init__(self, source: _Source, shape: Shape, place: Sequence[int], scale: float = 1.0) -> None:
        super().__init__(source, shape, shape.n_layer_drafter, scale)
        self.taps = [int(layer) for layer in source.value("target_layers").data]
        # A drafter taps the input of a layer; the input of none beyond the last exists.
        if outside := [layer for layer in self.taps if not 0 <= layer < len(place)]:
            raise ModelError(f"{source.path.name}: the target has no layer {outside[0]}", field="dflash.target_layers")
        self.place = place
        self.n_real = source.size("block_count")
        self.is_dflash2 = source.has("selector_hidden.weight")

    def metadata(self, ftype: str) -> dict[str, Value]:
        """As the base, with the taps moved to where the real layers went."""
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
        """All tensors."""
        small, large, fc = self.n_embd, self.shape.n_embd, self.source.tensor("fc.weight")
        yield _matrix(
            "fc.weight",
            (large, len(self.taps) * large),
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
        """A DFlash 2 convolution: base [2, taps, channels] plus a projection to [2, taps, channels / group] from the
        stream."""
        size, group = self.source.size("conv_kernel_size"), self.source.size("conv_group_size")
        identity = np.zeros((2, size, large), np.float32)
        identity[:, 0] = 1.0  # what the new channels and layers get: the block itself, nothing of its neighbours
        if not real:
            yield _exact(f"{name}_base", identity.shape, lambda: identity)
            yield _matrix(f"{name}_proj.weight", (2 * size * (large // group), large), list)
            return
        base, projection = self.source.tensor(f"{name}_base"), self.source.tensor(f"{name}_proj.weight")

        def widened_base() -> Array:
            out = identity.copy()
            out[:, :, :small] = base()
            return out

        yield _exact(f"{name}_base", identity.shape, widened_base)
        yield _matrix(
            f"{name}_proj.weight",
            (2 * size * (large // group), large),
            lambda: [_Block(i * (large // group), 0, part) for i, part in enumerate(np.split(projection(), 2 * size))],
        )
