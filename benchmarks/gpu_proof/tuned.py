"""The rows from which the device's matrix kernels are faster: `dflash-local doctor --tune`, with its times as tables.

Usage: python benchmarks/gpu_proof/tuned.py --device CUDA0 --shape 8b,27b
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package `benchmarks`

from benchmarks import record
from dflash_local.errors import DFlashError

ROWS = (1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64)
NEVER = 65
NOTHING = "nothing to choose"  # doctor's words for a device with one kernel
FOLDER = re.compile(r"(?<![^\s'\"=:,(])(?:/|~/|[A-Za-z]:\\)[\w.~-]")  # where an absolute path begins


def tune(device: str, types: str, shape: str, threads: int) -> dict[str, Any]:
    """The command's JSON. Raises DFlashError if it fails, unless the device has nothing to choose."""
    with tempfile.TemporaryDirectory(prefix="tuned-") as folder:
        out = Path(folder) / "tuned.json"
        command = [sys.executable, "-m", "dflash_local.cli", "doctor", "--tune", "--device", device, "--types", types]
        done = subprocess.run([*command, "--shape", shape, "-t", str(threads), "--json", str(out)])
        if not out.is_file():
            raise DFlashError(f"doctor --tune ended with status {done.returncode}")
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    failed = [finding["text"] for finding in found["findings"] if finding["level"] == "FAIL"]
    if any(NOTHING not in text for text in failed):
        raise DFlashError("; ".join(failed))
    return found


def elsewhere_true(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings without those that name a folder of this machine: a record is published."""
    return [one for one in findings if not any(FOLDER.search(str(text)) for text in one.values())]


def markdown(device: str, runs: Sequence[dict[str, Any]], footer: str) -> str:
    """Milliseconds of the kernels by rows, and from where they serve. `few`: of ours, for up to 64 rows."""
    if not runs:
        return f"{device} has one kernel for each type: nothing to choose.\n\n{footer}\n"
    rows = []
    for run in runs:
        for kernel in (name for name in ("vector", "matrix", "few") if any(run[f"{name}_ms"])):
            times = [run[f"{kernel}_ms"][n - 1] for n in ROWS]
            cells = ["-" if ms is None else f"{ms:.3f}" for ms in times]
            choice = f"{run['now']} -> {run['measured']}" if kernel == "matrix" else ""
            if kernel == "few":
                choice = f"-> {run['few_measured']}" if run["few_measured"] < NEVER else "never"
            rows.append([f"{run['type']}, {run['shape']}", kernel, *cells, choice])
    head = ["", "kernel", *map(str, ROWS), "serves from"]
    return f"Milliseconds by rows on {device}:\n\n{record.table(head, rows)}\n\n{footer}\n"


def main() -> int:
    ap = record.parser(__doc__, "tuned", n_predict=0, repeats=1)
    ap.add_argument("--device", default="CUDA0", metavar="NAME", help="ggml's name of the device")
    ap.add_argument("--types", default="q4_k,q6_k,q8_0", metavar="T,T", help="types of weights")
    ap.add_argument("--shape", default="8b,27b", metavar="S,S", help="shapes whose feed-forward is timed")
    args: argparse.Namespace = ap.parse_args()
    env = record.environment(ap, args)
    found = tune(args.device, args.types, args.shape, args.threads)
    text = markdown(args.device, found["runs"], record.footer(env))
    findings = elsewhere_true(found["findings"])
    return record.publish(args.out, {**env, "runs": found["runs"], "findings": findings}, text)


if __name__ == "__main__":
    record.run(main)
