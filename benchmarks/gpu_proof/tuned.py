"""Which of a device's kernels is fastest for how many rows: `dflash-local doctor --tune`, with its times as tables.

Usage: python benchmarks/gpu_proof/tuned.py --device CUDA0 --shape 8b,27b

Each type is timed by a process of its own, and written at once: a kernel that crashes takes no other's figures along.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package `benchmarks`

from benchmarks import memory_rate, record
from dflash_local.errors import DFlashError
from dflash_local.machine.tuning import MOST_DIFFERENCE, matrices

ROWS = (1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64)
SHARE_ROWS = (1, 8, 16, 64)
KERNELS = ("vector", "matrix", "few")
NEVER = 65
NOTHING = "nothing to choose"  # doctor's words for a device with one kernel
FOLDER = re.compile(r"(?<![^\s'\"=:,(])(?:/|~/|[A-Za-z]:\\)[\w.~-]")  # where an absolute path begins


def tune(device: str, weights: str, shape: str, threads: int) -> dict[str, Any]:
    """The command's JSON for one type. Raises DFlashError if it fails, unless the device has nothing to choose."""
    with tempfile.TemporaryDirectory(prefix="tuned-") as folder:
        out = Path(folder) / "tuned.json"
        command = [sys.executable, "-m", "dflash_local.cli", "doctor", "--tune", "--device", device, "--types", weights]
        done = subprocess.run([*command, "--shape", shape, "-t", str(threads), "--json", str(out)])
        if not out.is_file():
            raise DFlashError(f"doctor --tune of {weights} ended with status {done.returncode}")
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    failed = [finding["text"] for finding in found["findings"] if finding["level"] == "FAIL"]
    if any(NOTHING not in text for text in failed):
        raise DFlashError(f"{weights}: {'; '.join(failed)}")
    return found


def elsewhere_true(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings without those that name a folder of this machine: a record is published."""
    return [one for one in findings if not any(FOLDER.search(str(text)) for text in one.values())]


def kernels(run: Mapping[str, Any]) -> list[str]:
    """Those that were timed."""
    return [name for name in KERNELS if any(run[f"{name}_ms"])]


def wrong(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What our kernel computes otherwise than the matrix kernel."""
    return [
        f"{run['type']} {run['shape']}"
        for run in runs
        if "few" in kernels(run) and not run["difference"] <= MOST_DIFFERENCE
    ]


def markdown(
    device: str, runs: Sequence[dict[str, Any]], footer: str, rate: Mapping[str, Any] | None = None,
    errors: Sequence[str] = (),
) -> str:  # fmt: skip
    """Milliseconds of the kernels by rows, and from where they serve; with a `rate` (memory_rate.rate_of), their shares
    of it. `few`: of ours, for up to 64 rows."""
    told = [f"Failed: {error}" for error in errors]
    if not runs:
        nothing = [] if told else [f"{device} has one kernel for each type: nothing to choose."]
        return "\n\n".join([*told, *nothing, footer]) + "\n"
    rows = []
    for run in runs:
        for kernel in kernels(run):
            times = [run[f"{kernel}_ms"][n - 1] for n in ROWS]
            cells = ["-" if ms is None else f"{ms:.3f}" for ms in times]
            choice = f"{run['now']} -> {run['measured']}" if kernel == "matrix" else ""
            off = ""
            if kernel == "few":
                choice = f"-> {run['few_measured']}" if run["few_measured"] < NEVER else "never"
                off = f"{run['difference']:.1e}"
            rows.append([f"{run['type']}, {run['shape']}", kernel, *cells, choice, off])
    head = ["", "kernel", *map(str, ROWS), "serves from", "off the matrix kernel's"]
    off = (
        "*Off the matrix kernel's*: the largest squared error of our kernel's products over their square; "
        f"{MOST_DIFFERENCE:g} is allowed."
    )
    parts = [f"Milliseconds by rows on {device}:", record.table(head, rows), off]
    return "\n\n".join([*parts, *(shares(runs, rate) if rate else []), *told, footer]) + "\n"


def shares(runs: Sequence[Mapping[str, Any]], rate: Mapping[str, Any]) -> list[str]:
    """The kernels' shares of the memory rate: bytes of the weights over the time."""
    rows = []
    for run in runs:
        for kernel in kernels(run):
            times = [run[f"{kernel}_ms"][n - 1] for n in SHARE_ROWS]
            cells = ["-" if ms is None else f"{100 * share(run, ms, rate):.0f} %" for ms in times]
            rows.append([f"{run['type']}, {run['shape']}", kernel, *cells])
    source = f"{rate['device']}, {rate['gb_per_s']:,.0f} GB/s by {rate['source']}"
    title = f"Share of the memory rate ({source}) at which the weights are read, by rows:"
    return [title, record.table(["", "kernel", *map(str, SHARE_ROWS)], rows)]


def share(run: Mapping[str, Any], ms: float, rate: Mapping[str, Any]) -> float:
    """Of the memory rate, if the products of a run take so long: each weight is read once."""
    numbers, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[run["type"].upper()]]
    weights = sum(m * k for m, k in matrices(run["shape"])) * n_bytes / numbers
    return weights / (ms * 1e-3) / (1e9 * float(rate["gb_per_s"]))


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main() -> int:
    ap = record.parser(__doc__, "tuned", n_predict=0, repeats=1)
    ap.add_argument("--device", default="CUDA0", metavar="NAME", help="ggml's name of the device")
    ap.add_argument("--types", default="q4_k,q6_k,q8_0", metavar="T,T", help="types of weights")
    ap.add_argument(
        "--more", default="q5_k,q4_0,q4_1,iq4_xs", metavar="T,T", help="more types, of the first shape alone"
    )
    ap.add_argument("--shape", default="8b,27b", metavar="S,S", help="shapes whose feed-forward is timed")
    args: argparse.Namespace = ap.parse_args()
    env = record.environment(ap, args)
    rate = memory_rate.rate_of(env["devices"]) if args.device != "CPU" else None
    first = args.shape.partition(",")[0]
    runs: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    errors: list[str] = []

    def text() -> str:
        return markdown(args.device, runs, record.footer(env), rate, errors)

    for weights in [*names(args.types), *names(args.more)]:
        try:
            found = tune(args.device, weights, first if weights in names(args.more) else args.shape, args.threads)
            runs += found["runs"]
            findings += [one for one in elsewhere_true(found["findings"]) if one not in findings]
            errors += [f"our kernel computes something else: {one}" for one in wrong(found["runs"])]
        except DFlashError as error:
            errors.append(str(error))
        record.save(args.out, {**env, "rate": rate, "runs": runs, "findings": findings, "errors": errors}, text())
    print(text())
    if errors:
        raise DFlashError("; ".join(errors))
    return 0


if __name__ == "__main__":
    record.run(main)
