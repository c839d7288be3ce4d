"""What a repacked layout costs: time to load a target and memory once it is loaded, ours, stock's and without any
repacking.

Usage: python benchmarks/load_cost.py [--shapes 0.6b,4b] [--types q4_0,q4_k_m,q8_0] [--json OUT]

Each load is a separate process, timed until a first pass of two rows is done, since that pass reads a memory-mapped
file. Cold: the file's pages were dropped from the page cache before. `mapped` is llama.cpp with use_extra_bufts off, so
that all weights stay in the file. Memory is what the load added: the process's own (anonymous) and pages of the file.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import kernels, record, targets
from benchmarks.commas import Commas, add_types_option
from dflash_local import native
from dflash_local.engine import Engine

MAPPED = "mapped"
HOWS = (kernels.OURS, kernels.STOCK, MAPPED)
MIB = 2**20


def memory() -> dict[str, int]:
    """Bytes of this process by the names in /proc/self/status."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return {key: int(value) * 1024 for key, value in re.findall(r"^(\w+):\s+(\d+) kB$", status, re.M)}


def from_disk() -> int:
    """Bytes that this process has read from a disk."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split("read_bytes: ")[1].split()[0])


def load(path: Path, how: str, threads: int) -> dict[str, float]:
    """In a child: load once."""
    native.load()
    before, read, start = memory(), from_disk(), time.perf_counter()
    if how == MAPPED:
        keep: Any = _load_mapped(path, threads)
    else:
        keep = Engine(path, n_ctx=512, n_threads=threads, warmup=False, cost_cache=False)
    seconds, after = time.perf_counter() - start, memory()
    figures = {"seconds": seconds, "from_disk": from_disk() - read, "peak": after["VmHWM"] - before["VmRSS"]}
    figures |= {"own": after["RssAnon"] - before["RssAnon"], "file": after["RssFile"] - before["RssFile"]}
    if isinstance(keep, Engine):
        keep.close()
    return figures


def _load_mapped(path: Path, threads: int) -> Any:
    import llama_cpp as llama

    silent = llama.llama_log_callback(lambda level, text, user: None)
    llama.llama_log_set(silent, None)
    llama.llama_backend_init()
    model_params, params = llama.llama_model_default_params(), llama.llama_context_default_params()
    model_params.use_extra_bufts = False
    params.n_ctx, params.n_threads, params.n_threads_batch = 512, threads, threads
    model = llama.llama_model_load_from_file(str(path).encode(), model_params)
    context = llama.llama_init_from_model(model, params)
    batch = llama.llama_batch_get_one((llama.llama_token * 2)(1, 2), 2)
    if llama.llama_decode(context, batch):
        raise RuntimeError(f"{path.name}: a first pass failed")
    return model, context, silent


def forget(path: Path) -> None:
    """Drop the file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(path: Path, how: str, threads: int, cold: bool) -> dict[str, float]:
    if cold:
        forget(path)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), kernels._switch, (how,)) as child:
        return child.submit(load, path, how, threads).result()


def row(shape: str, kind: str, how: str, path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One line of the table: medians over loads of the file."""
    cold, warm = ([measure(path, how, args.threads, cold) for _ in range(args.repeats)] for cold in (True, False))

    def middle(loads: Sequence[dict[str, float]], key: str) -> float:
        return median(one[key] for one in loads)

    seconds = {"cold_seconds": round(middle(cold, "seconds"), 3), "warm_seconds": round(middle(warm, "seconds"), 3)}
    sizes = {key: int(middle(warm, key)) for key in ("own", "file", "peak")}
    found = {"shape": shape, "type": kind, "how": how, "file_bytes": path.stat().st_size}
    return {**found, **seconds, **sizes, "cold_from_disk": int(middle(cold, "from_disk"))}


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    lines = []
    for r in rows:
        file = [r["shape"], r["type"].upper(), f"{r['file_bytes'] / MIB:.0f}"] if r["how"] == HOWS[0] else [""] * 3
        sizes = [f"{r[key] / MIB:.0f}" for key in ("own", "file", "peak")]
        lines.append([*file, r["how"], f"{r['cold_seconds']:.2f}", f"{r['warm_seconds']:.2f}", *sizes])
    head = ["shape", "type", "file, MiB", "", "cold, s", "warm, s", "own, MiB", "of the file, MiB", "peak, MiB"]
    return f"{record.table(head, lines)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.kernel_parser(__doc__, "load_cost")
    ap.add_argument(
        "--shapes", type=lambda text: Commas(text.split(",")), default=Commas(("0.6b", "4b")), metavar="A,B"
    )
    add_types_option(ap)
    ap.add_argument("--threads", type=int, default=2, metavar="N")
    ap.add_argument("--repeats", type=int, default=3, metavar="N", help="loads of each kind")
    args = ap.parse_args(argv)
    if wrong := [shape for shape in args.shapes if shape not in targets.SHAPES]:
        ap.error(f"--shapes: {wrong[0]!r} is not one of {', '.join(targets.SHAPES)}")
    table = record.Table(ap, args, markdown)
    for shape, kind, how in itertools.product(args.shapes, args.types, HOWS):
        table.add(row(shape, kind, how, targets.make(args.work, shape, kind), args))
        record.say(str(table.rows[-1]))
    return table.show()


if __name__ == "__main__":
    record.run(main)
