"""A theoretical roofline for GPUs: the lowest possible cost of a pass and a step, and what it means for drafting.

Usage: python benchmarks/gpu_roofline.py

Computed, not measured: docs/roofline.md says how, and what is left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import record
from dflash_local.build.commit import running_commit
from dflash_local.convert.writer import OutputTensor
from dflash_local.demo.inflate import InflatedFile, inflated_files
from dflash_local.demo.pocket import HYBRID, bundled_pair
from dflash_local.demo.shapes import SHAPES, Shape

ROWS = (1, 2, 4, 8, 16, 32, 64)
SHAPE_NAMES = ("8b", "27b", "hybrid-27b", "35b-a3b")
TYPES = ("q4_k_m", "q8_0")
BLOCK = 16  # nodes of a tree and tokens of the drafter's block
UPSTREAM_N_MAX = (3, 7, 15)
ATTENTION_EVERY = 4  # of a hybrid's layers
AL = 8.0  # acceptance length assumed in comparisons
GDN_COLUMNS, GDN_CHANNELS = 16, 8  # gdn_geometry.h


@dataclass(frozen=True)
class Gpu:
    """A vendor's figures: bytes per second, int8 multiply-adds per second of the tensor cores (dense), float operations
    per second of the other cores."""

    name: str
    bandwidth: float
    multiply_adds: float
    operations: float
    memory: float  # bytes


GPUS = (
    Gpu("RTX 3090", 936e9, 142e12, 35.6e12, 24e9),
    Gpu("H100 SXM", 3350e9, 989e12, 66.9e12, 80e9),
)
PCIE = 25e9  # bytes a second, generation 4 with 16 lanes
GAP = 1.5e-6  # seconds between kernels of a CUDA graph, assumed


@dataclass(frozen=True)
class Kernels:
    """Ops of one layer's graph (llama.cpp's, GGML_SCHED_DEBUG=2 with the pocket pairs). CUDA fuses norms with their
    scales; products launch a second kernel that quantizes their input."""

    ops: int
    fused: int
    products: int

    @property
    def launches(self) -> int:
        return self.ops - self.fused + self.products


LAYER = {
    "attention": Kernels(23, 4, 7),
    "hybrid attention": Kernels(26, 4, 7),
    "delta-net": Kernels(55, 3, 8),
    # Not from a graph: router, top-k, three products of experts, SWIGLU, weights and their sums replace the four ops of
    # the feed-forward.
    "experts": Kernels(33, 4, 8),
    "drafter": Kernels(25, 4, 8),
}
REST = Kernels(6, 1, 1)  # embedding, last norm, head


# ---- our kernels (tests/benchmarks/test_gpu_roofline.py holds these against the emulation) --------------------------


def gdn_tree_counts(rows: int, size: int = 128) -> dict[str, int]:
    """The work of gdn_tree for one head of one sequence (a chain, scalar gates): float operations, exponentials, floats
    read from and written to global memory."""
    blocks, chunks = size // GDN_COLUMNS, size // GDN_CHANNELS
    pairs = rows * (rows + 1) // 2
    multiply = chunks * (rows * GDN_COLUMNS + pairs) * (5 * GDN_CHANNELS + 2)
    decay = GDN_COLUMNS * sum(t + 1 + 2 for t in range(rows)) + sum(
        t - a + 2 for t in range(rows) for a in range(t + 1)
    )
    solve = GDN_COLUMNS * sum(2 * t + 2 for t in range(rows))
    write = GDN_COLUMNS * sum(2 * (t + 1) + 1 for t in range(rows))
    return {
        "operations": blocks * (multiply + decay + solve + write) + 1,  # the scale
        "exp": blocks * 2 * (rows * GDN_COLUMNS + pairs),
        "read": blocks * (3 * rows * size + GDN_COLUMNS * (size + 2 * rows)),
        "written": blocks * 2 * GDN_COLUMNS * rows,
    }


def gdn_commit_counts(rows: int, size: int = 128) -> dict[str, int]:
    """What gdn_commit computes and moves for a path of `rows`."""
    elements = size * size
    return {
        "operations": 3 * rows * elements,
        "exp": rows * elements,
        "read": elements * (1 + 3 * rows),
        "written": elements,
    }


# ---- models ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """The matrices of a pass: bytes in the file and numbers; those of experts for all of them together."""

    n_bytes: int = 0
    numbers: int = 0
    expert_bytes: int = 0
    expert_numbers: int = 0
    file_bytes: int = 0


def weights_of(file: InflatedFile, *borrowed: OutputTensor) -> Weights:
    """The weights as `demo.inflate` would write them, and those of another file that a pass reads as well."""
    own = list(file.tensors)
    read = [one for one in (*own, *borrowed) if len(one.shape) > 1 and one.name != "token_embd.weight"]

    def size(of_experts: bool) -> tuple[int, int]:
        some = [one for one in read if ("_exps" in one.name) == of_experts]
        return sum(one.n_bytes for one in some), sum(prod(one.shape) for one in some)

    return Weights(*size(False), *size(True), sum(one.n_bytes for one in own))


@dataclass(frozen=True)
class Model:
    """The reads, multiplications and launches in passes of a target or a drafter."""

    shape: Shape
    weights: Weights
    n_attention: int
    n_delta: int
    launches: int
    context: int

    def bytes(self, rows: int) -> float:
        """Weights, the expected number of experts for uniform independent choices of the rows, K and V in f16, and the
        delta-nets' states: read by gdn_tree, read and written by gdn_commit."""
        total = float(self.weights.n_bytes) + 2 * 2 * self.n_attention * self._n_kv * self.context
        if experts := self.shape.experts:
            total += self.weights.expert_bytes * (1 - (1 - experts.n_used / experts.n) ** rows)
        if delta := self.shape.delta:
            total += 3 * 4 * self.n_delta * delta.n_head_v * delta.head**2
        return total

    @property
    def _n_kv(self) -> int:
        head = self.shape.head or self.shape.n_embd // self.shape.n_head
        return self.shape.n_head_kv * head

    def multiply_adds(self, rows: int) -> float:
        experts = self.shape.experts
        used = self.weights.expert_numbers * experts.n_used / experts.n if experts else 0.0
        return rows * (self.weights.numbers + used)

    def gdn_operations(self, rows: int) -> float:
        """Float operations of gdn_tree, and of gdn_commit for a path of half the rows."""
        if not self.shape.delta or not self.n_delta:
            return 0.0
        one = gdn_tree_counts(rows)["operations"] + gdn_commit_counts((rows + 1) // 2)["operations"]
        return float(self.n_delta * self.shape.delta.n_head_v * one)

    def seconds(self, gpu: Gpu, rows: int) -> float:
        """The lower bound of a pass's time."""
        work = max(self.bytes(rows) / gpu.bandwidth, self.multiply_adds(rows) / gpu.multiply_adds)
        return work + self.gdn_operations(rows) / gpu.operations + self.launches * GAP

    def knee(self, gpu: Gpu) -> float:
        """Rows at which multiplying takes as long as reading for one row."""
        return self.bytes(1) / gpu.bandwidth / (self.multiply_adds(1) / gpu.multiply_adds)

    def bound(self, gpu: Gpu, rows: int) -> str:
        """The longest part."""
        parts = {
            "reading": self.bytes(rows) / gpu.bandwidth,
            "multiplying": self.multiply_adds(rows) / gpu.multiply_adds,
            "launches": self.launches * GAP,
        }
        return max(parts, key=lambda name: parts[name])


def pair_of(name: str, ftype: str, context: int) -> tuple[Model, Model]:
    shape = SHAPES[name]
    target, drafter = inflated_files(bundled_pair(HYBRID if shape.delta else "dflash"), Path(), shape, ftype)
    n_delta = shape.n_layer * (ATTENTION_EVERY - 1) // ATTENTION_EVERY if shape.delta else 0
    kind = "hybrid attention" if shape.delta else "experts" if shape.experts else "attention"
    launches = (shape.n_layer - n_delta) * LAYER[kind].launches + n_delta * LAYER["delta-net"].launches + REST.launches
    plain = Shape(shape.n_layer_drafter, shape.n_embd, shape.n_ff, shape.n_head, shape.n_head_kv, shape.n_vocab, 0, 128)
    n_draft = shape.n_layer_drafter
    # A drafter without a head uses the target's, and reads it once more.
    head, own = ([one for one in file.tensors if one.name == "output.weight"] for file in (target, drafter))
    read = weights_of(drafter, *([] if own else head))
    return (
        Model(shape, weights_of(target), shape.n_layer - n_delta, n_delta, launches, context),
        Model(plain, read, n_draft, 0, n_draft * LAYER["drafter"].launches + 11, context),
    )


# ---- what it says ----------------------------------------------------------------------------------------------------


def step(gpu: Gpu, target: Model, drafter: Model) -> float:
    """Seconds of one of our steps: verify a tree, draft a block."""
    return target.seconds(gpu, BLOCK) + drafter.seconds(gpu, BLOCK)


def upstream_step(gpu: Gpu, target: Model, drafter: Model, n_max: int) -> float:
    """Seconds of a step of upstream with our kernels: a chain, and logits of all its rows over the bus."""
    logits = 4 * target.shape.n_vocab * (n_max + 1) / PCIE
    return target.seconds(gpu, n_max + 1) + drafter.seconds(gpu, BLOCK) + logits


def chain_al(al: float, n_max: int) -> float:
    """AL of chains of `n_max` tokens if chains of 15 have `al` and all tokens have the same acceptance rate."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**i for i in range(BLOCK)) < al:
            low = middle
        else:
            high = middle
    return sum(low**i for i in range(n_max + 1))


def figures(gpu: Gpu, name: str, ftype: str, context: int) -> dict[str, Any]:
    target, drafter = pair_of(name, ftype, context)
    plain, ours = target.seconds(gpu, 1), step(gpu, target, drafter)
    best = max(chain_al(AL, n) / upstream_step(gpu, target, drafter, n) for n in UPSTREAM_N_MAX)
    return {
        "gpu": gpu.name,
        "shape": name,
        "type": ftype,
        "fits": target.weights.file_bytes + drafter.weights.file_bytes < gpu.memory,
        "gb": {rows: round(target.bytes(rows) / 1e9, 3) for rows in ROWS},
        "ms": {rows: round(1e3 * target.seconds(gpu, rows), 3) for rows in ROWS},
        "bound": {rows: target.bound(gpu, rows) for rows in ROWS},
        "knee": round(target.knee(gpu), 1),
        "drafter_ms": round(1e3 * drafter.seconds(gpu, BLOCK), 3),
        "launches": target.launches,
        "drafter_launches": drafter.launches,
        "gdn_ms": round(1e3 * target.gdn_operations(BLOCK) / gpu.operations, 3),
        "step_ms": round(1e3 * ours, 3),
        "al_for_5": round(5 * ours / plain, 2),
        "over_plain_at_8": round(AL * plain / ours, 2),
        "over_upstream_at_equal_al": round(AL / ours / best, 3),
        "al_for_1_3": round(1.3 * best * ours, 2),
    }


def markdown(found: Sequence[dict[str, Any]], footer: str) -> str:
    def label(f: dict[str, Any]) -> str:
        return f"{f['shape']} {f['type'].upper()}{'' if f['fits'] else ' (does not fit)'}"

    parts = ["Computed, not measured. GB that a pass reads, and milliseconds it takes at least, by rows:"]
    by_gpu = {gpu.name: [f for f in found if f["gpu"] == gpu.name] for gpu in GPUS}
    for name, mine in by_gpu.items():
        head = [name, "GB, 1 row", "16", "64", *(f"ms, {n}" for n in ROWS), "bound at 1", "at 16", "at 64", "knee"]
        rows = [
            [label(f), *(f"{f['gb'][n]:.2f}" for n in (1, 16, 64)), *(f"{f['ms'][n]:.2f}" for n in ROWS)]
            + [*(f["bound"][n] for n in (1, 16, 64)), f"{f['knee']:.0f}"]
            for f in mine
        ]
        parts.append(record.table(head, rows))
    parts.append("A step of a tree of 16 nodes and a block of 16, and what it asks for:")
    for name, mine in by_gpu.items():
        head = [name, "launches, target", "drafter", "gdn, ms", "drafter, ms", "step, ms", "AL for 5 x plain"]
        head += ["x plain at AL 8", "over upstream's best at equal AL 8", "AL for 1.3 x of it"]
        rows = [
            [label(f), str(f["launches"]), str(f["drafter_launches"]), f"{f['gdn_ms']:.2f}", f"{f['drafter_ms']:.2f}"]
            + [f"{f['step_ms']:.2f}", f"{f['al_for_5']:.1f}", f"{f['over_plain_at_8']:.1f}"]
            + [f"{f['over_upstream_at_equal_al']:.2f}", f"{f['al_for_1_3']:.1f}"]
            for f in mine
        ]
        parts.append(record.table(head, rows))
    head = ["rows", "gdn_tree: operations", "exp", "KB read", "KB written", "gdn_commit: operations", "KB read"]
    rows = []
    for n in ROWS:
        tree, commit = gdn_tree_counts(n), gdn_commit_counts(n)
        kb = [f"{tree[key] * 4 / 1e3:.0f}" for key in ("read", "written")]
        rows.append([str(n), f"{tree['operations']:,}", f"{tree['exp']:,}", *kb])
        rows[-1] += [f"{commit['operations']:,}", f"{commit['read'] * 4 / 1e3:.0f}"]
    parts.append("Our kernels, one head of 128 channels, one layer, as the emulation counts them:")
    return "\n\n".join([*parts, record.table(head, rows), footer]) + "\n"


def main() -> int:
    ap = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    ap.add_argument("--context", type=int, default=2048, metavar="N", help="cells of K and V that a pass reads")
    ap.add_argument("-o", "--out", type=Path, default=record.RESULTS / "gpu_roofline", metavar="STEM")
    args = ap.parse_args()
    found = [figures(gpu, name, ftype, args.context) for gpu in GPUS for name in SHAPE_NAMES for ftype in TYPES]
    text = markdown(found, f"Context {args.context}; commit {running_commit()}. `python benchmarks/gpu_roofline.py`")
    head = {"commit": running_commit(), "context": args.context, "gap_us": 1e6 * GAP}
    return record.publish(args.out, {**head, "figures": found}, text)


if __name__ == "__main__":
    record.run(main)
