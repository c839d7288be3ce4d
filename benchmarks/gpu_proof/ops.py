"""Every op on the device against the CPU: llama.cpp's own cases, op by op, and ours of gdn_tree and gdn_commit.

Usage: python benchmarks/gpu_proof/ops.py [--device CUDA0] [--seconds 90]

The programs are those of the bundle (GPU_PROOF_TESTS). Ops that models here use come first; ops that remain untested
when the time is over are listed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package `benchmarks`

from benchmarks import record
from dflash_local.errors import DFlashError
from dflash_local.native import library_path

OURS = "gdn_tree and gdn_commit"
# The ops of targets and drafters: first those that take most of a pass, then the others in its graphs.
FIRST = (
    "MUL_MAT", "FLASH_ATTN_EXT", "MUL_MAT_ID", "RMS_NORM", "ROPE", "SET_ROWS", "SWIGLU", "SOFT_MAX", "ADD", "MUL",
    "GATED_DELTA_NET", "SSM_CONV", "L2_NORM", "SIGMOID", "SILU", "SOFTPLUS", "EXP", "SUB", "DIV", "SCALE", "CONCAT",
    "CONT", "CPY", "REPEAT", "SUM_ROWS", "TOP_K", "ARGSORT", "ARGMAX", "GET_ROWS",
)  # fmt: skip
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CASE = re.compile(r"(\w+\(.*\)): (OK|.*FAIL|not supported)")


@dataclass(frozen=True)
class Op:
    """The results of an op's cases."""

    name: str
    right: int
    wrong: list[str]  # the cases
    unsupported: int
    seconds: float
    ended: str = ""  # how, if not normally

    @property
    def failed(self) -> bool:
        return bool(self.wrong) or self.ended.startswith("status")


class Programs:
    """The test programs, with the libraries of this process."""

    def __init__(self, folder: Path, device: str, environment: Mapping[str, str] = os.environ) -> None:
        self._folder, self._device = folder, device
        libraries = [str(library_path().parent), environment.get("LD_LIBRARY_PATH", "")]
        self._environment = {**environment, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}

    def names(self) -> list[str]:
        """All ops of ggml except ours, which `ours` tests."""
        listed, _ = self._run(["test-backend-ops", "--list-ops"], 60.0)
        found = re.findall(r"^\s+([A-Z][A-Z0-9_]+)$", listed, re.MULTILINE)
        if not found:
            raise DFlashError(f"test-backend-ops lists no ops: {listed.strip()[-300:]}")
        return [name for name in found if not name.startswith("GDN_")]

    def ours(self, seconds: float) -> Op:
        start = time.monotonic()
        output, ended = self._run(["test_gdn_ops"], seconds)
        seen = [line for line in output.splitlines() if line.startswith(("S ", self._device))]
        wrong = [line for line in output.splitlines() if "CHECK" in line or "failed" in line]
        return Op(OURS, len(seen), wrong, output.count("not supported"), round(time.monotonic() - start, 1), ended)

    def op(self, name: str, seconds: float, like: str = "") -> Op:
        """The cases whose parameters match the expression `like`."""
        start = time.monotonic()
        threads = str(min(8, os.cpu_count() or 1))
        command = ["test-backend-ops", "test", "-b", self._device, "-o", name, "-p", like, "-j", threads]
        output, ended = self._run(command, seconds)
        cases = [match.groups() for match in map(CASE.search, output.splitlines()) if match]
        wrong = [case for case, result in cases if result.endswith("FAIL")]
        counts = Counter(result for _, result in cases)
        return Op(name, counts["OK"], wrong, counts["not supported"], round(time.monotonic() - start, 1), ended)

    def _run(self, command: Sequence[str], seconds: float) -> tuple[str, str]:
        """A program's output, and how it ended if not normally."""
        try:
            done = subprocess.run(
                [str(self._folder / command[0]), *command[1:]],
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired as error:
            return COLOURS.sub("", (error.stdout or b"").decode(errors="replace")), f"stopped after {seconds:.0f} s"
        text = COLOURS.sub("", done.stdout.decode(errors="replace"))
        return text, "" if done.returncode == 0 else f"status {done.returncode}"


def markdown(found: Sequence[Op], left: Sequence[str], footer: str) -> str:
    rows = [
        [op.name, str(op.right), str(len(op.wrong)), str(op.unsupported), f"{op.seconds:.1f}", op.ended]
        for op in found
        if op.right or op.wrong or op.ended
    ]
    lines = [record.table(["op", "right", "wrong", "not supported", "seconds", ""], rows), ""]
    lines += [f"- wrong: `{case}`" for op in found for case in op.wrong[:20]]
    if absent := [op.name for op in found if not (op.right or op.wrong or op.ended)]:
        lines += ["", f"The device has none of: {', '.join(absent)}."]
    if left:
        lines += ["", f"Not tested, the time was over: {', '.join(left)}."]
    return "\n".join([*lines, "", footer]) + "\n"


def parser() -> argparse.ArgumentParser:
    ap = record.parser(__doc__, "ops", n_predict=0, repeats=1)
    ap.add_argument("--device", default="CUDA0", metavar="NAME", help="ggml's name of the device")
    ap.add_argument("--seconds", type=float, default=90.0, metavar="N", help="start no op after this time")
    ap.add_argument("--each", type=float, default=25.0, metavar="N", help="most seconds of one op")
    ap.add_argument("--ops", nargs="+", metavar="OP", help="these alone, besides ours")
    return ap


def main() -> int:
    ap = parser()
    args: argparse.Namespace = ap.parse_args()
    env = record.environment(ap, args)
    end = time.monotonic() + args.seconds
    folder = os.environ.get("GPU_PROOF_TESTS")
    if not folder:
        raise DFlashError("GPU_PROOF_TESTS must name the folder of the test programs", hint="run: make gpu-proof")
    programs = Programs(Path(folder), args.device)
    names = args.ops or sorted(programs.names(), key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    found = [programs.ours(args.each)]
    for i, name in enumerate(names):
        left = end - time.monotonic()
        if left > 1.0:
            found.append(programs.op(name, min(args.each, left)))
        untested = names[len(found) - 1 :] if left > 1.0 else names[i:]
        record.save(
            args.out,
            {**env, "ops": [asdict(op) for op in found], "not_tested": untested},
            markdown(found, untested, record.footer(env)),
        )
        if left <= 1.0:
            break
    failed = [op.name for op in found if op.failed]
    print(markdown(found, [], record.footer(env)))
    if failed:
        raise DFlashError(f"{', '.join(failed)}: wrong on {args.device}")
    return 0


if __name__ == "__main__":
    record.run(main)
