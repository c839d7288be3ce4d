"""Perplexity of a fixed text with stock kernels and with ours, in narrow and wide passes.

Usage: python benchmarks/perplexity.py [--shape pocket] [--types q4_0,...] [--widths 1,32] [--json OUT]

The text (perplexity.txt, about 10,000 tokens of the kind that the pocket model was trained on) is read in independent
windows of WINDOW tokens; a width is the number of rows of a pass. Perplexity is exp of the mean of -log p(token), in
float64. docs/roofline.md says why the difference per token is more telling.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import kernels, record, targets
from benchmarks.commas import Commas, add_types_option
from benchmarks.kernels import OURS, STOCK

TEXT = record.HERE / "perplexity.txt"
WINDOW = 512
TYPES = (
    "q4_0", "q4_1", "q5_0", "q5_1", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "iq4_nl", "mxfp4", "q2_k", "q3_k", "iq4_xs",
    "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "f16", "bf16",
)  # fmt: skip


def same(stock: float, ours: float) -> bool:
    """Do they differ by less than half a unit of the fourth digit?"""
    return abs(ours - stock) < 0.5 * 10 ** (math.floor(math.log10(stock)) - 3)


def surprises(
    both: kernels.Processes, path: Path, text: str, widths: Sequence[int], threads: int
) -> dict[int, dict[str, np.ndarray]]:
    """-log p of each token, by width and process."""
    kernels.open_all(both, path, threads, n_ctx=WINDOW)
    tokens = both[STOCK].submit(kernels.tokenize, text).result()
    figures = {
        n: {name: both[name].submit(kernels.surprise, tokens, WINDOW, n).result() for name in kernels.NAMES}
        for n in widths
    }
    kernels.close_all(both)
    return figures


def row(kind: str, width: int, by_name: dict[str, np.ndarray], f16: np.ndarray) -> dict[str, Any]:
    """Perplexities, and mean absolute differences of -log p per token: ours from stock, and the type from F16 (both
    stock)."""
    stock, ours = by_name[STOCK], by_name[OURS]
    perplexity = {name: round(float(np.exp(values.mean())), 6) for name, values in by_name.items()}
    return {
        "type": kind,
        "width": width,
        **perplexity,
        "same": same(*perplexity.values()),
        "ours_from_stock": round(float(np.abs(ours - stock).mean()), 6),
        "stock_from_f16": round(float(np.abs(stock - f16).mean()), 6),
    }


def markdown(found: dict[str, Any]) -> str:
    """A line per type: stock and ours by width, and the differences per token at the widest."""
    widths = sorted({row["width"] for row in found["rows"]})
    lines = []
    for kind in dict.fromkeys(row["type"] for row in found["rows"]):
        rows = sorted((row for row in found["rows"] if row["type"] == kind), key=lambda row: row["width"])
        figures = [f"{row[name]:.5f}" for row in rows for name in kernels.NAMES]
        yes = "yes" if all(row["same"] for row in rows) else "**no**"
        lines.append(
            [kind.upper(), *figures, yes, f"{rows[-1]['ours_from_stock']:.5f}", f"{rows[-1]['stock_from_f16']:.5f}"]
        )
    names = [f"{name}, {n} row{'s' if n > 1 else ''}" for n in widths for name in kernels.NAMES]
    head = ["type", *names, "same to four digits", "per token: ours from stock", "type from F16"]
    return f"{record.table(head, lines)}\n\n{found['tokens']} tokens. {record.footer(found)}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.kernel_parser(__doc__, "perplexity")
    ap.add_argument(
        "--shape", choices=targets.SHAPES, default=targets.POCKET, help="what the pocket target is inflated to"
    )
    add_types_option(ap, TYPES)
    ap.add_argument(
        "--widths", type=Commas.numbers, default=Commas((1, 32)), metavar="N,M", help="rows of a pass, at most 64"
    )
    ap.add_argument("--threads", type=int, default=1, metavar="N", help="one is faster for the pocket target")
    ap.add_argument("--letters", type=int, metavar="N", help="of the text (default: all of it)")
    args = ap.parse_args(argv)
    text = TEXT.read_text(encoding="utf-8")[: args.letters]
    figures = record.environment(ap, args) | {"tokens": 0, "rows": []}
    with kernels.processes() as both:

        def of(kind: str, widths: Sequence[int]) -> dict[int, dict[str, np.ndarray]]:
            return surprises(both, targets.make(args.work, args.shape, kind), text, widths, args.threads)

        widest = args.widths[-1]
        f16 = of("f16", [widest])[widest][STOCK]
        figures["tokens"] = len(f16)
        for kind in args.types:
            figures["rows"] += [row(kind, width, by_name, f16) for width, by_name in of(kind, args.widths).items()]
            record.say(f"{kind}: {figures['rows'][-1]}")
            record.save(args.out, figures, markdown(figures))
    record.publish(args.out, figures, markdown(figures))
    return int(not all(row["same"] for row in figures["rows"]))


if __name__ == "__main__":
    record.run(main)
