"""Widen and deepen a small trained pair into one of a real model's shape that computes the same function, up to rounding.

A speed measured on a toy says nothing about real models, and random weights say nothing about acceptance. The inflated pair
accepts like the trained pair that it was made from and costs what a model of its shape costs.

How: the residual stream is padded with zeros, because every projection back into it has zero rows there; norm weights and epsilon
are rescaled for the larger mean. New heads, feed-forward units and layers get random weights but zero output columns. Real layers
keep their order among the new ones, so the tap "input of layer r" becomes the input of the layer that r became. One padded channel
carries a tiny constant that only the final norm sees: it pushes the logits of padded vocabulary rows far down.

A head of d channels becomes one of D by spreading: rotation i of d/2 has the frequency of rotation i * D/d of D/2, so the pair of
channels (i, i + d/2) goes there and the rest stay zero. The norms of q and k make up for the larger mean and for 1/sqrt(D).

A MoE target is made of the dense one by copying the feed-forward into every expert: the weights of the experts that a router picks
add up to 1, so any router gives the same sum. Where the feed-forward is larger than an expert, neighbouring experts hold its parts;
they have the same router row, hence the same weight, and are picked together.

Every tensor is computed, and quantized, in chunks of rows while it is written, so memory stays at a few chunks whatever the shape.
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

from dflash_local import native, quantizer
from dflash_local.convert.gguf_metadata import Value, read_metadata, string, u32
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.errors import DFlashError, ModelError, PairError

Array = npt.NDArray[Any]
Progress = Callable[[str, int], None]
Quantizer = Callable[[Path, Path, str], None]
Names = Callable[[str], tuple[str, str | None]]

TARGET_ARCH, MOE_ARCH, DRAFTER_ARCH = "qwen3", "qwen3moe", "dflash"
TYPES = ("f16", "q4_0", "q4_k_m", "q8_0")
CHUNK = 1 << 21  # elements computed at once
NOISE = 0.02  # standard deviation of the new weights, that of a fresh transformer
# The constant channel: its value in the embedding, what the final norm multiplies it by, and the padded head rows' weight on it.
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


@dataclass(frozen=True)
class Shape:
    """The size of an inflated pair. With experts, `n_ff` is the drafter's alone."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    n_layer_drafter: int
    head: int | None = None  # None: that of the small pair
    experts: Experts | None = None


# The two smallest keep heads and vocabularies small. 4b and 8b are Qwen3's, 27b is Gemma 3 27B's; 35b-a3b has the layers, experts and
# vocabulary of Qwen3.5-35B-A3B and, in every layer, the attention of Qwen3-30B-A3B.
SHAPES = {
    "0.1b": Shape(12, 512, 1536, 8, 4, 8192, 2),
    "0.6b": Shape(28, 1024, 3072, 16, 8, 32000, 5),
    "4b": Shape(36, 2560, 9728, 32, 8, 151936, 5, 128),
    "8b": Shape(36, 4096, 12288, 32, 8, 151936, 5, 128),
    "27b": Shape(62, 5376, 21504, 32, 16, 262144, 5, 128),
    "35b-a3b": Shape(40, 2048, 6144, 32, 4, 248320, 5, 128, Experts(256, 8, 512)),
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
    """Write `out_dir`/target.gguf and drafter.gguf: the `small` pair in `shape`, as `ftype` (the drafter as `drafter_type`).

    Types are those of `quantizer.FILE_TYPES`. Tensors are quantized while they are written; with `quantize` it gets a whole f16 file
    instead, to show that another quantizer's bytes are the same.

    Raises:
        ModelError: a file is damaged, not a qwen3 target or DFlash drafter, or larger than `shape`; `field` says where.
        PairError: the two files do not belong together.
        DFlashError: the disk is too small.
    """
    target, drafter = _Source(small.target, TARGET_ARCH), _Source(small.drafter, DRAFTER_ARCH)
    _check_pair(target, drafter)
    place = _places(target.size("block_count"), shape.n_layer)
    models: tuple[_Inflated, ...] = (_InflatedTarget(target, shape, place), _InflatedDrafter(drafter, shape, place))
    out = Pair(out_dir / "target.gguf", out_dir / "drafter.gguf")
    files = []
    for path, kind, model in zip(out, (ftype, drafter_type or ftype), models, strict=True):
        written = "f16" if quantize else kind
        n_expert = model.experts.n if model.experts else 0
        tensors = [quantizer.quantized(tensor, written, n_layer=model.n_layer, n_expert=n_expert) for tensor in model.tensors()]
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
            raise PairError(f"{drafter.path.name} is not a drafter for {target.path.name}: {key} is {b}, not {a}", field=key)


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


class _Source:
    """A small model: its metadata, and its tensors as float32 arrays in row-major shape."""

    def __init__(self, path: Path, arch: str) -> None:
        self.path, self.arch = path, arch
        self.metadata = read_metadata(path)
        found = self.metadata.get("general.architecture")
        if found is None or found.data != arch.encode():
            raise ModelError(f"{path.name}: only a {arch} model can be inflated here", field="general.architecture")
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


class _Block(NamedTuple):
    """Values for a rectangle of a matrix whose upper left corner is (row, column)."""

    row: int
    column: int
    values: Array


@cache
def _noise() -> Array:
    """The new weights. Every chunk takes them from another place: drawing each weight anew would take longer than quantizing it."""
    return np.random.default_rng(0).standard_normal(2 * CHUNK, dtype=np.float32) * np.float32(NOISE)


def _matrix(name: str, shape: tuple[int, ...], blocks: Callable[[], Sequence[_Block]], *, noise: bool = False) -> OutputTensor:
    """A matrix of the given blocks, and of zeros or noise elsewhere; a stack of matrices [n, rows, columns] is one of n * rows rows."""
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
                    out[first - start : last - start, column : column + values.shape[1]] = values[first - row : last - row]
            yield out

    return OutputTensor(name, shape, GGMLQuantizationType.F32, chunks)


def _exact(name: str, shape: tuple[int, ...], values: Callable[[], Array]) -> OutputTensor:
    """A small tensor that stays f32."""
    return OutputTensor(name, shape, GGMLQuantizationType.F32, lambda: [values().astype(np.float32)])


class _Inflated:
    """What target and drafter have in common. Tensors are f32 here, in file order."""

    experts: Experts | None = None

    def __init__(self, source: _Source, shape: Shape, n_layer: int) -> None:
        self.source, self.shape, self.n_layer = source, shape, n_layer
        self.n_embd, self.n_ff, self.n_vocab = source.size("embedding_length"), source.size("feed_forward_length"), source.n_vocab
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
        # A head of q reads the head of k and v of its group: real heads come first in their group, real groups first of all.
        group, small_group = shape.n_head // shape.n_head_kv, heads // heads_kv
        if small_group > group:
            raise self._unfit("attention.head_count_kv", f"{small_group} heads share one of k and v, in the shape only {group}")
        self.kv_heads = list(range(heads_kv))
        self.q_heads = [kv * group + i for kv in self.kv_heads for i in range(small_group)]
        self.channels = self._spread_channels()

    def _unfit(self, key: str, why: str, hint: str | None = None) -> ModelError:
        return ModelError(f"{self.source.path.name}: {key} does not fit: {why}", field=key, hint=hint)

    def _spread_channels(self) -> Array:
        """Where a small head's channels go in a large one."""
        small, large, arch = self.small_head, self.head, self.source.arch
        if small == large:
            return np.arange(small)
        if large % small:
            raise self._unfit("attention.key_length", f"heads of {small} cannot become heads of {large}")
        for key, value in self.source.metadata.items():
            if key in (f"{arch}.rope.dimension_count", f"{arch}.attention.value_length"):
                odd = value.data != small
            else:
                odd = key == f"{arch}.attention.scale" or (key.startswith(f"{arch}.rope.") and not key.endswith(".freq_base"))
            if odd:
                raise self._unfit(key, "only plain heads, rotated in full, can be widened")
        pair = np.arange(small // 2) * (large // small)
        return np.concatenate([pair, large // 2 + pair])

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
            "rope.dimension_count": self.head,
            # The mean of squares is over more channels, all new ones zero.
            epsilon: self.source.value(epsilon).data * self.n_embd / self.shape.n_embd,
            "vocab_size": self.shape.n_vocab,
        }
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

    def matrix(self, name: str, source: str | None, rows: int, columns: int, *, noise: bool = False) -> OutputTensor:
        """The small matrix, if there is one, in the upper left corner of a larger one."""
        small = self.source.tensor(source) if source else None
        return _matrix(name, (rows, columns), lambda: [_Block(0, 0, small())] if small else [], noise=noise)

    def heads(self, name: str, source: str | None, n_head: int, places: Sequence[int], *, output: bool = False) -> OutputTensor:
        """A projection to heads, or of the heads' output, with the small heads at `places`."""
        small = self.source.tensor(source) if source else None
        size = n_head * self.head

        def blocks() -> Iterator[_Block]:
            if small is None:
                return
            weights = small().T if output else small()
            for place, rows in zip(places, np.split(weights, len(places)), strict=True):
                head = np.zeros((self.head, self.n_embd), np.float32)
                head[self.channels] = rows
                yield _Block(0, place * self.head, head.T) if output else _Block(place * self.head, 0, head)

        shape = (self.shape.n_embd, size) if output else (size, self.shape.n_embd)
        return _matrix(name, shape, lambda: list(blocks()), noise=not output)

    def layer(self, index: int, real: int | None) -> Iterator[OutputTensor]:
        """Layer `index`: the small model's layer `real`, or, if None, one that adds nothing to the stream."""

        def names(part: str) -> tuple[str, str | None]:
            return f"blk.{index}.{part}.weight", None if real is None else f"blk.{real}.{part}.weight"

        for part in ("attn_norm", "ffn_norm"):
            yield self.norm(*names(part))
        # The mean of squares over a wider head is smaller by small_head / head: k's norm undoes that, q's lets it make up for 1/sqrt(head).
        yield self.head_norm(*names("attn_q_norm"))
        yield self.head_norm(*names("attn_k_norm"), (self.small_head / self.head) ** 0.5)
        yield self.heads(*names("attn_q"), self.shape.n_head, self.q_heads)
        for part in ("attn_k", "attn_v"):
            yield self.heads(*names(part), self.shape.n_head_kv, self.kv_heads)
        yield self.heads(*names("attn_output"), self.shape.n_head, self.q_heads, output=True)
        yield from self.feed_forward(names)

    def feed_forward(self, names: Names) -> Iterator[OutputTensor]:
        """The part of a layer after attention; `names` gives a tensor's name and, in a real layer, its small one's."""
        if self.n_ff > self.shape.n_ff:
            raise self._unfit("feed_forward_length", f"{self.n_ff} > {self.shape.n_ff}", hint="take a larger shape")
        for part in ("ffn_gate", "ffn_up"):
            yield self.matrix(*names(part), self.shape.n_ff, self.shape.n_embd, noise=True)
        yield self.matrix(*names("ffn_down"), self.shape.n_embd, self.shape.n_ff)


class _InflatedTarget(_Inflated):
    def __init__(self, source: _Source, shape: Shape, place: Sequence[int]) -> None:
        super().__init__(source, shape, shape.n_layer)
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
        head = self.source.tensor("output.weight") if self.source.has("output.weight") else embedding  # tied: the head gets its own copy
        yield _matrix(
            "token_embd.weight",
            (n_vocab, n_embd),
            lambda: [_Block(0, 0, embedding()), _Block(0, constant, np.full((n_vocab, 1), CONSTANT))],
        )
        yield _matrix(
            "output.weight",
            (n_vocab, n_embd),
            lambda: [_Block(0, 0, head()), _Block(self.n_vocab, constant, np.full((n_vocab - self.n_vocab, 1), PADDED_ROW))],
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
                f"{self.n_ff} units fill {n_parts} experts of {n_ff}, and {n_used} used ones of {n} are no whole number of those",
            )
        n_embd = self.shape.n_embd
        router = _matrix(names("ffn_gate_inp")[0], (n // n_parts, n_embd), list, noise=True)
        yield _exact(router.name, (n, n_embd), lambda: np.repeat(np.concatenate(list(router.chunks())), n_parts, axis=0))

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

    def metadata(self, ftype: str) -> dict[str, Value]:
        """As the base, with the taps moved to where the real layers went."""
        result = super().metadata(ftype)
        result["dflash.target_layers"] = replace(result["dflash.target_layers"], data=[self.place[layer] for layer in self.taps])
        pattern = "dflash.attention.sliding_window_pattern"
        if pattern in result:
            result[pattern] = replace(result[pattern], data=[*result[pattern].data, *[False] * (self.n_layer - self.n_real)])
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
        """A DFlash 2 convolution: base [2, taps, channels] plus a projection to [2, taps, channels / group] from the stream."""
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
