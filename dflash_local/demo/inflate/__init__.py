"""Widen and deepen a small trained pair into one of a real model's shape that computes the same function, up to
rounding.

The speed of a toy says nothing about real models, and random weights say nothing about acceptance. The inflated pair
has the acceptance of the trained pair and the cost of a model of its shape.

How: the residual stream is padded with zeros, because every projection back into it has zero rows there; norm weights
and epsilon are rescaled for the larger mean. New heads, feed-forward units and layers get random weights but zero
output columns. Real layers keep their order among the new ones, so the tap "input of layer r" becomes the input of the
layer that r became. One padded channel carries a tiny constant that only the final norm sees: it pushes the logits of
padded vocabulary rows far down.

A head of d channels becomes one of D by spreading: rotation i of d/2 has the frequency of rotation i * D/d of D/2, so
the pair of channels (i, i + d/2) goes there and the rest stay zero; channels without rotation follow the rotated ones.
The norms of q and k compensate for the larger mean and for 1/sqrt(D).

A hybrid (qwen35) keeps its order of layers, three of gated delta-net to one of attention: whole groups of four are
added. A delta-net head is padded with zeros, which its L2 norms of q and k do not see; the norm over its output
compensates for the larger mean and for 1/sqrt(D). That output is often so small that the norm's epsilon matters, and
the whole model has one epsilon: the streams of both models are scaled so that they need the same epsilon as the output.

A MoE target is made from the dense one by copying the feed-forward into every expert: the weights of the experts that a
router picks add up to 1, so any router gives the same sum. If the feed-forward is larger than an expert, neighbouring
experts hold its parts; they have the same router row, hence the same weight, and are picked together.

A target that reads images (qwen3vl) keeps its first layers first: its projector adds to the stream behind each of them.
The projector (`InflatedProjector`) gives rows of the wider stream.

Every tensor is computed and quantized in chunks of rows while it is written, so memory stays at a few chunks for any
shape.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo import quantizer
from dflash_local.demo.inflate.inflated_drafter import InflatedDrafter
from dflash_local.demo.inflate.inflated_hybrid import InflatedHybrid
from dflash_local.demo.inflate.inflated_model import InflatedModel
from dflash_local.demo.inflate.inflated_projector import InflatedProjector
from dflash_local.demo.inflate.inflated_target import InflatedTarget
from dflash_local.demo.inflate.source import PROJECTOR_ARCH, SmallModel
from dflash_local.demo.shapes import Pair, Shape, Tower
from dflash_local.errors import DFlashError, ModelError, PairError

Progress = Callable[[str, int], None]
Quantizer = Callable[[Path, Path, str], None]

TARGET_ARCHS, HYBRID_ARCH, DRAFTER_ARCH = ("qwen3", "hy_v3", "qwen3vl"), "qwen35", "dflash"


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

    Types are those of `quantizer.FILE_TYPES`. Tensors are quantized while they are written; a given `quantize` gets a
    whole f16 file instead, to compare another quantizer's bytes.

    Raises:
        ModelError: a file is damaged, not a target of the kind that `shape` is for (qwen3, qwen3vl, hy_v3;
            qwen35 with a delta-net) or not a DFlash drafter, or larger than `shape`; `field` says where.
        PairError: the two files do not belong together.
        DFlashError: the disk is too small.
    """
    files = list(inflated_files(small, out_dir, shape, ftype, drafter_type=drafter_type, as_f16=quantize is not None))
    out_dir.mkdir(parents=True, exist_ok=True)
    _check_disk(out_dir, sum(tensor.n_bytes for file in files for tensor in file.tensors))
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
    return Pair(*(file.path for file in files))


def inflate_projector(small: Path, out: Path, tower: Tower, shape: Shape) -> Path:
    """Write `out`: the `small` projector (qwen3vl_merger) with a vision tower of that size, as f16, for a target in
    `shape`. Returns `out`.

    Raises:
        ModelError: the file is damaged, another kind of projector, or larger than `tower`; `field` says where.
    """
    source = SmallModel(small, PROJECTOR_ARCH)
    place = _places(source.size("vision.block_count"), tower.n_layer)
    projector = InflatedProjector(source, tower, place, shape.n_embd)
    tensors = list(projector.tensors())
    source.check_all_used()
    write_gguf(out, projector.metadata(), tensors)
    return out


class InflatedFile(NamedTuple):
    """A file to write."""

    path: Path
    type: str
    model: InflatedModel
    tensors: list[OutputTensor]


def inflated_files(
    small: Pair, out_dir: Path, shape: Shape, ftype: str, *, drafter_type: str | None = None, as_f16: bool = False
) -> Iterator[InflatedFile]:
    """The target's file and the drafter's, before any tensor is computed; `as_f16` overrides their types."""
    target, drafter = (
        SmallModel(small.target, *((HYBRID_ARCH,) if shape.delta else TARGET_ARCHS)),
        SmallModel(small.drafter, DRAFTER_ARCH),
    )
    _check_pair(target, drafter)
    if shape.delta:
        place = _hybrid_places(target, shape.n_layer)
        hybrid = InflatedHybrid(target, shape, shape.delta, place)
        models: tuple[InflatedModel, ...] = (hybrid, InflatedDrafter(drafter, shape, place, hybrid.scale))
    else:
        first = target.size("n_deepstack_layers", 0)
        place = [*range(first), *(first + i for i in _places(target.n_layer - first, shape.n_layer - first))]
        models = (InflatedTarget(target, shape, place), InflatedDrafter(drafter, shape, place))
    out = Pair(out_dir / "target.gguf", out_dir / "drafter.gguf")
    for path, kind, model in zip(out, (ftype, drafter_type or ftype), models, strict=True):
        written = "f16" if as_f16 else kind
        n_expert = model.experts.n if model.experts else 0
        tensors = [
            quantizer.quantized(tensor, written, n_layer=model.n_layer, n_expert=n_expert) for tensor in model.tensors()
        ]
        model.source.check_all_used()
        yield InflatedFile(path, kind, model, tensors)


def _check_pair(target: SmallModel, drafter: SmallModel) -> None:
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
    """The places of the real layers among all, spread evenly; the last real one stays last."""
    return [round((i + 1) * n_all / n_real) - 1 for i in range(n_real)]


def _hybrid_places(target: SmallModel, n_all: int) -> list[int]:
    """Like `_places`, by whole groups, so that each layer keeps its kind."""
    n_real, interval = target.n_layer, target.size("full_attention_interval")
    recurrent = [(i + 1) % interval != 0 for i in range(n_real)] + [False] * target.n_mtp
    if n_real % interval or n_all % interval or list(target.value("attention.recurrent_layers").data) != recurrent:
        raise ModelError(
            f"{target.path.name}: layers do not come in whole groups of {interval}", field="attention.recurrent_layers"
        )
    return [group * interval + i for group in _places(n_real // interval, n_all // interval) for i in range(interval)]
