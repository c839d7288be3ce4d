"""An EAGLE-3 head inflated together with its target (dflash_local/demo/inflate): it has the proposals of the small head
and the cost of a head of that size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dflash_local.convert.gguf_metadata import Value, read_model, u32
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo import quantizer
from dflash_local.demo.inflate import _places
from dflash_local.demo.inflate.inflated_model import PUSH, InflatedModel
from dflash_local.demo.inflate.source import SmallModel
from dflash_local.demo.inflate.tensors import Block, Heads, exact_tensor, padded_matrix
from dflash_local.demo.shapes import Shape


class SmallHead(SmallModel):
    """The small head, written by train_eagle3.py and not checked, since our strict check does not support heads."""

    def __init__(self, path: Path) -> None:
        self.path, self.arch = path, "eagle3"
        self.metadata, self._tensors = read_model(path)
        self._used = set()


class InflatedHead(InflatedModel):
    """The head of train_eagle3.py for the inflated target whose layers moved to `place`."""

    def __init__(self, source: SmallModel, shape: Shape, place: Sequence[int]) -> None:
        super().__init__(source, shape, 1)
        if self.head != self.small_head:
            # Upstream rotates neighbouring channels in this architecture, which inflation does not support.
            raise self._unfit("attention.key_length", f"heads of {self.small_head} cannot become heads of {self.head}")
        self.taps, self.place = [int(layer) for layer in source.value("target_layers").data], place

    def metadata(self, ftype: str) -> dict[str, Value]:
        """Like the base, with the taps moved along with the real layers."""
        result = super().metadata(ftype)
        for key, data in (
            ("target_layers", [self.place[layer] for layer in self.taps]),
            ("target_hidden_size", self.shape.n_embd),
        ):
            result[f"eagle3.{key}"] = replace(result[f"eagle3.{key}"], data=data)
        return result

    def tensors(self) -> Iterator[OutputTensor]:
        large, constant, fc = self.shape.n_embd, self.n_embd, self.source.tensor("fc.weight")
        parts = len(self.taps)
        yield padded_matrix(
            "fc.weight",
            (large, parts * large),
            lambda: [
                *(Block(0, i * large, part) for i, part in enumerate(np.split(fc(), parts, axis=1))),
                Block(constant, constant, np.ones((1, 1), np.float32)),  # the first tap's constant channel
            ],
        )
        for part in ("blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"):
            yield self.norm(f"{part}.weight", f"{part}.weight")
        yield self.norm("output_norm.weight", "output_norm.weight", PUSH)
        yield self._projection("blk.0.attn_q.weight", self.q)
        yield self._projection("blk.0.attn_k.weight", self.kv)
        yield self._projection("blk.0.attn_v.weight", self.kv)
        yield self.heads("blk.0.attn_output.weight", "blk.0.attn_output.weight", self.q, output=True)
        yield from self.feed_forward(lambda part: (f"blk.0.{part}.weight", f"blk.0.{part}.weight"))

    def _projection(self, name: str, to: Heads) -> OutputTensor:
        """A projection to heads, from a token's embedding followed by the hidden state."""
        small, large = self.source.tensor(name), self.shape.n_embd

        def blocks() -> list[Block]:
            return [
                Block(place * to.size, i * large, part)
                for place, rows in zip(to.places, np.split(small(), len(to.places)), strict=True)
                for i, part in enumerate(np.split(rows, 2, axis=1))
            ]

        return padded_matrix(name, (to.n * to.size, 2 * large), blocks, noise=True)


def inflate_head(head: Path, n_layer: int, shape: Shape, ftype: str, out: Path) -> Path:
    """Write `head`, trained for a target of `n_layer` layers, for that target in `shape`; returns `out`."""
    model = InflatedHead(SmallHead(head), shape, _places(n_layer, shape.n_layer))
    tensors = [quantizer.quantized(tensor, ftype, n_layer=1) for tensor in model.tensors()]
    model.source.check_all_used()
    write_gguf(out, model.metadata(ftype), tensors, lambda name, n: None)
    return out


def quantize_head(head: Path, ftype: str, out: Path) -> Path:
    """Write `head` with its matrices as `ftype`; returns `out`."""
    small = SmallHead(head)
    tensors = [
        quantizer.quantized(exact_tensor(name, tensor.shape, small.tensor(name)), ftype, n_layer=1)
        for name, tensor in small._tensors.items()
    ]
    metadata = small.metadata | {"general.file_type": u32(quantizer.FILE_TYPES[ftype])}
    write_gguf(out, metadata, tensors, lambda name, n: None)
    return out
