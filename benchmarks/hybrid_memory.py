"""The memory for rolling back a hybrid target: a slot's tape against upstream's snapshots of the recurrent state.

Usage: python benchmarks/hybrid_memory.py [--shape hybrid-0.6b] [--type q4_0] [--rows 16 32]

Measured with budgets of --rows nodes on the inflated pair, where the formula must match, and computed for the 27B
shape.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from dflash_local.demo.shapes import SHAPES, Shape
from dflash_local.engine import Engine

SNAPSHOTS = 15
CONV, F32, MIB = 4, 4, 2**20  # width of the short convolution, bytes
ATTENTION = 4  # every fourth layer


def sizes(shape: Shape) -> tuple[int, int]:
    """Bytes of a slot's recurrent state, and of one row of its tape: k, delta, gate and the convolution's input of each
    delta-net layer."""
    assert shape.delta
    keys, values = shape.delta.n_head_k * shape.delta.head, shape.delta.n_head_v * shape.delta.head
    channels = 2 * keys + values
    layers = shape.n_layer - shape.n_layer // ATTENTION
    state = values * shape.delta.head + (CONV - 1) * channels
    return layers * state * F32, layers * (keys + values + shape.delta.n_head_v + channels) * F32


def line(name: str, how: str, rows: int, state: int, tape: int) -> list[str]:
    kept = SNAPSHOTS * state
    sizes = [f"{state / MIB:.1f}", f"{tape / MIB:.2f}", f"{kept / MIB:.0f}", f"{100 * tape / kept:.1f} %"]
    return [name, how, str(rows), *sizes]


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "hybrid_memory", n_predict=1, repeats=1)
    record.add_pair_options(ap, "hybrid-0.6b")
    ap.add_argument("--type", default="q4_0", help="quantization of the pair")
    ap.add_argument("--rows", nargs="+", type=int, default=[16, 32], metavar="N", help="nodes of a tree")
    args = ap.parse_args(argv)
    env = record.environment(ap, args)
    pair = pairs.make(args.work, args.shape, args.type, "hybrid")
    state, row = sizes(SHAPES[args.shape])
    lines, measured = [], []
    for rows in args.rows:
        with Engine(pair.target, pair.drafter, n_ctx=512, n_threads=args.threads, budget=rows, warmup=False) as engine:
            memory: dict[str, Any] = engine.info["memory"]
        if memory["slot_state"] != state or not rows * row <= memory["slot_tape"] <= 1.01 * rows * row:
            raise SystemExit(f"measured {memory}, computed a state of {state} and a tape of {rows * row}")
        measured.append({"rows": rows, "state": memory["slot_state"], "tape": memory["slot_tape"]})
        lines.append(line(args.shape, "measured", rows, memory["slot_state"], memory["slot_tape"]))
    state, row = sizes(SHAPES["hybrid-27b"])
    lines += [line("hybrid-27b", "computed", rows, state, rows * row) for rows in args.rows]
    head = ["shape", "", "nodes", "state, MiB", "tape, MiB", f"{SNAPSHOTS} snapshots, MiB", "tape over snapshots"]
    text = record.table(head, lines) + f"\n\nOf one slot, beside the one committed state. {record.footer(env)}\n"
    return record.publish(args.out, {**env, "rows": measured}, text)


if __name__ == "__main__":
    record.run(main)
