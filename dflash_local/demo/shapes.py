"""Pair: two model files. Shape: a size to which the pocket pairs can be inflated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TYPES = ("f16", "q4_0", "q4_k_m", "q8_0")


class Pair(NamedTuple):
    """The files of a target and its drafter."""

    target: Path
    drafter: Path


class Experts(NamedTuple):
    """The experts of a MoE target, in place of each feed-forward."""

    n: int
    n_used: int
    n_ff: int  # units of one expert


class DeltaNet(NamedTuple):
    """The gated delta-net layers of a hybrid: heads of q and k, heads of v (a multiple), channels of each."""

    n_head_k: int
    n_head_v: int
    head: int


class Tower(NamedTuple):
    """The size of an inflated projector's vision tower; its heads keep their channels."""

    n_layer: int
    n_embd: int
    n_ff: int


@dataclass(frozen=True)
class Shape:
    """The size of an inflated pair. With experts, `n_ff` is only the drafter's. `delta` is for hybrid pairs only, which
    need it."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    n_layer_drafter: int
    head: int | None = None  # None: as in the small pair
    experts: Experts | None = None
    delta: DeltaNet | None = None


SIGLIP = Tower(12, 768, 3072)  # SigLIP's smallest, which has twice as wide heads
# The two smallest keep heads and vocabularies small. 4b and 8b are Qwen3's, 27b is Gemma 3 27B's. 2b-a0.3b has the
# experts of Qwen3-30B-A3B, half as wide; 35b-a3b has the layers, experts and vocabulary of Qwen3.5-35B-A3B and, in
# every layer, the attention of Qwen3-30B-A3B. hybrid-27b is Qwen3.5-27B's, but half of each attention head is rotated;
# the smaller hybrids are scaled down from it, with three value heads to a key head and heads of 128 in the delta-net.
SHAPES = {
    "0.1b": Shape(12, 512, 1536, 8, 4, 8192, 2),
    "0.6b": Shape(28, 1024, 3072, 16, 8, 32000, 5),
    "4b": Shape(36, 2560, 9728, 32, 8, 151936, 5, 128),
    "8b": Shape(36, 4096, 12288, 32, 8, 151936, 5, 128),
    "27b": Shape(62, 5376, 21504, 32, 16, 262144, 5, 128),
    "2b-a0.3b": Shape(16, 1024, 3072, 16, 4, 32000, 5, None, Experts(128, 8, 384)),
    "35b-a3b": Shape(40, 2048, 6144, 32, 4, 248320, 5, 128, Experts(256, 8, 512)),
    "hybrid-0.1b": Shape(12, 512, 1792, 4, 2, 8192, 2, 128, delta=DeltaNet(2, 6, 128)),
    "hybrid-0.6b": Shape(32, 1024, 3584, 4, 2, 32000, 5, 256, delta=DeltaNet(4, 12, 128)),
    "hybrid-4b": Shape(32, 2560, 8704, 12, 4, 151936, 5, 256, delta=DeltaNet(8, 24, 128)),
    "hybrid-27b": Shape(64, 5120, 17408, 24, 4, 248320, 5, 256, delta=DeltaNet(16, 48, 128)),
}
