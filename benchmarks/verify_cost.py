"""What a target pass of n rows costs: stock kernels against ours, and the least that this machine could take (the
roofline).

Usage: python benchmarks/verify_cost.py --shape 0.6b --types q4_0,q4_k_m,q8_0 --json OUT [--threads 1,2] [--rows
1,2,3,4,...] [--repeats 5]
       python benchmarks/verify_cost.py --md --json OUT      the tables of a file that is there already, without
       measuring anything

docs/roofline.md ("How to read it") says what is timed, what the roofline is, and when a turn counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import kernels, record, systems, targets
from benchmarks.ceilings import MEMORY, Ceilings, Cores, Meter
from benchmarks.commas import Commas, add_types_option
from benchmarks.kernels import OURS, STOCK
from benchmarks.targets import Matrices

SECONDS = 0.15  # of passes, a turn
TRIES = 3  # of a turn
Row = dict[str, Any]
Times = dict[str, list[float]]
FLOATS = ("F16", "BF16", "F32")


def roofline(matrices: Matrices, ceilings: Ceilings, rows: int) -> tuple[float, float]:
    """Milliseconds of a pass: (reading, computing)."""
    n_bytes = sum(matrices.n_bytes.values())
    # Data that fits a cache is read faster: take the higher of the memory's speed and that of a buffer of its size.
    speed = max(speed for size, speed in ceilings.read.items() if size in (n_bytes, MEMORY))
    seconds = sum(
        macs * rows / (1e9 * (ceilings.f32 if kind in FLOATS else ceilings.int8))
        for kind, macs in matrices.macs.items()
    )
    return n_bytes / speed / 1e6, 1e3 * seconds


def cell(
    kind: str, threads: int, rows: int, times: Mapping[str, Sequence[float]], bound: tuple[float, float]
) -> dict[str, Any]:
    """A line of the result: medians over all passes, and their quartiles."""
    found: dict[str, Any] = {"type": kind, "threads": threads, "n": rows}
    for key, name in (("stock", STOCK), ("our", OURS)):
        found[f"{key}_ms"] = round(median(times[name]), 3)
    found |= {"roofline_ms": round(max(bound), 3), "bound": "reading" if bound[0] >= bound[1] else "computing"}
    for key, name in (("stock", STOCK), ("our", OURS)):
        low, _, high = quantiles(times[name], n=4, method="inclusive")
        found[f"{key}_spread"] = [round(low, 3), round(high, 3)]
    return found


class Turns:
    """Measurements while the cores are ours alone, if possible, with counts of disturbed ones."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self.n_turns = self.n_again = self.n_disturbed = 0

    def take(self, turn: Callable[[], Times]) -> Times:
        """The result of `turn`: of the first undisturbed try, else of the last."""
        self.n_turns += 1
        for tried in range(TRIES):
            self.n_again += tried > 0
            self._cores.wait()
            times = turn()
            if self._cores.alone():
                return times
        self.n_disturbed += 1
        return times


def measure(
    both: kernels.Processes,
    path: Path,
    threads: int,
    widths: Sequence[int],
    context: int,
    repeats: int,
    limits: Callable[[], Ceilings],
    turns: Turns,
) -> tuple[dict[int, dict[str, list[float]]], dict[int, list[Ceilings]]]:
    """Milliseconds of passes by width and process, and the machine's ceilings by width; all widths are measured in each
    repeat."""
    kernels.open_all(both, path, threads, n_ctx=-(-(context + max(widths) + 1) // 256) * 256, cells=context)
    found: dict[int, dict[str, list[float]]] = {n: {name: [] for name in kernels.NAMES} for n in widths}
    ceilings: dict[int, list[Ceilings]] = {n: [] for n in widths}
    for repeat in range(repeats):
        for i, n in enumerate(widths):
            ceilings[n].append(limits())
            order = systems.order(kernels.NAMES, repeat + i)
            times = turns.take(partial(_turn, both, order, n))
            for name in order:
                found[n][name] += times[name]
    kernels.close_all(both)
    return found, ceilings


def _turn(both: kernels.Processes, order: Iterable[str], n: int) -> Times:
    return {name: both[name].submit(kernels.pass_times, n, SECONDS).result() for name in order}


def ms(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


LINES: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("stock", lambda row: ms(row["stock_ms"])),
    ("**ours**", lambda row: f"**{ms(row['our_ms'])}**"),
    ("roofline", lambda row: ms(row["roofline_ms"])),
    ("stock of roofline", lambda row: percent(row["roofline_ms"], row["stock_ms"])),
    ("ours of roofline", lambda row: percent(row["roofline_ms"], row["our_ms"])),
    ("its fastest quarter", lambda row: percent(row["roofline_ms"], row["our_spread"][0])),
    ("stock / ours", lambda row: f"{row['stock_ms'] / row['our_ms']:.2f}"),
)


def markdown(figures: Mapping[str, Any]) -> str:
    """For each number of threads a table with the lines of LINES per type, then the ceilings."""
    parts = []
    for threads, ceilings in figures["ceilings"].items():
        rows = [row for row in figures["rows"] if row["threads"] == int(threads)]
        if not rows:
            continue
        widths = sorted({row["n"] for row in rows})
        body = []
        for kind in dict.fromkeys(row["type"] for row in rows):
            at = {row["n"]: row for row in rows if row["type"] == kind}
            for title, text in LINES:
                body.append(
                    [kind.upper() if title == "stock" else "", title, *(text(at[n]) if n in at else "" for n in widths)]
                )
        plural = "s" if int(threads) > 1 else ""
        read = ", ".join(
            f"{speed:.0f} GB/s over {int(size) / 1e6:.0f} MB"
            for size, speed in sorted(ceilings["read"].items(), key=lambda item: int(item[0]))
        )
        tile = f"; {ceilings['tile']:.0f} · 10⁹ with AMX tiles" if ceilings["tile"] else ""
        parts += [
            f"{threads} thread{plural}, milliseconds by rows of the pass:",
            record.table(["", "", *map(str, widths)], body),
            f"Ceilings with {threads} thread{plural}: {read}; multiply-adds per second: {ceilings['int8']:.0f} · 10⁹ "
            f"of int8 ({ceilings['instruction']}), {ceilings['f32']:.0f} · 10⁹ of f32{tile}.",
        ]
        if turns := figures.get("turns", {}).get(threads):
            parts.append(
                f"{turns['n']} turns; {turns['again']} were done again, because another guest computed on the same "
                f"cores, {turns['disturbed']} stayed disturbed."
            )
    lines = []
    for kind, model in figures["models"].items():
        n_bytes, macs, kv = sum(model["bytes"].values()), sum(model["macs"].values()), model["attention"]
        matrices = f"{n_bytes / 1e6:.0f} MB of matrices ({', '.join(model['bytes'])})"
        work = f"{macs / 1e6:.0f} · 10⁶ multiply-adds per row"
        share = f"reads {percent(kv['bytes'], n_bytes)} as much and computes {percent(kv['macs'], macs)}"
        lines.append(f"{kind.upper()}: {matrices}, {work}.")
        if figures["context"]:
            lines[-1] += f" Attention over {figures['context']} cells, which the roofline leaves out, {share}."
    return "\n\n".join([*parts, "\n".join(lines), record.footer(figures)]) + "\n"


def parser() -> argparse.ArgumentParser:
    ap = record.kernel_parser(__doc__, "verify_cost")
    ap.add_argument("--shape", choices=targets.SHAPES, default="0.6b", help="what the pocket target is inflated to")
    add_types_option(ap)
    ap.add_argument("--threads", type=Commas.numbers, default=Commas((1, 2)), metavar="N,M")
    ap.add_argument(
        "--rows",
        type=Commas.numbers,
        default=Commas((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 512)),
        metavar="N,M",
        help="of a pass",
    )
    # 192 and up to 64 rows of its own are 256: llama.cpp attends to cells in steps of 256, so one more would double
    # stock's attention
    ap.add_argument(
        "--context", type=int, default=192, metavar="N", help="cells that every pass attends to, beside its own"
    )
    ap.add_argument("--repeats", type=int, default=5, metavar="N", help="turns of stock and of ours at every width")
    ap.add_argument("--md", action="store_true", help="print the tables of OUT again and measure nothing")
    return ap


def measured(
    both: kernels.Processes, args: argparse.Namespace, threads: int, meter: Meter, weights: Mapping[str, Matrices]
) -> Iterator[dict[str, Any]]:
    """What the record gets with each type: its rows, and the turns and ceilings so far."""
    ceilings: list[Ceilings] = []
    turns = Turns(Cores(partial(meter.instructions_per_clock, threads)))
    for kind, matrices in weights.items():
        size = sum(matrices.n_bytes.values())
        ceilings.append(meter.measure(threads, [size]))
        limits = partial(meter.measure, threads, [size], quick=True)
        path = targets.make(args.work, args.shape, kind)
        times, at = measure(both, path, threads, args.rows, args.context, args.repeats, limits, turns)
        ceilings += [one for all_ in at.values() for one in all_]
        rows = []
        for n in args.rows:
            reading, computing = zip(*(roofline(matrices, one, n) for one in at[n]), strict=True)
            rows.append(cell(kind, threads, n, times[n], (median(reading), median(computing))))
        listed = ", ".join(f"{n}: {median(t[STOCK]):.1f} → {median(t[OURS]):.1f}" for n, t in times.items())
        record.say(f"{kind}, {threads} threads: {listed}")
        counts = {"n": turns.n_turns, "again": turns.n_again, "disturbed": turns.n_disturbed}
        yield {"rows": rows, "turns": counts, "ceilings": Ceilings.middle(ceilings).to_json()}


def main(argv: Sequence[str] | None = None) -> int:
    ap = parser()
    args = ap.parse_args(argv)
    if args.md:
        if not (figures := record.load(args.out)):
            ap.error(f"--md: {args.out} is not there")
        return record.publish(args.out, figures, markdown(figures))
    figures = record.environment(ap, args)
    figures["command"] = kernels.switched() + figures["command"]
    weights = {kind: Matrices.of(targets.make(args.work, args.shape, kind)) for kind in args.types}
    models = {
        kind: {
            "bytes": matrices.n_bytes,
            "macs": matrices.macs,
            "attention": {"bytes": args.context * matrices.kv_bytes, "macs": args.context * matrices.kv_macs},
        }
        for kind, matrices in weights.items()
    }
    figures |= {"context": args.context, "ceilings": {}, "turns": {}, "models": models, "rows": []}
    with TemporaryDirectory() as folder, kernels.processes() as both:
        meter = Meter(Path(folder))
        for threads in args.threads:
            for found in measured(both, args, threads, meter, weights):
                figures["rows"] += found["rows"]
                figures["turns"][str(threads)], figures["ceilings"][str(threads)] = found["turns"], found["ceilings"]
                record.save(args.out, figures, markdown(figures))
    return record.publish(args.out, figures, markdown(figures))


if __name__ == "__main__":
    record.run(main)
