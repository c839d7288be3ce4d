"""Every op on the device against the CPU: llama.cpp's own cases, and ours of gdn_tree and gdn_commit.

Usage: python benchmarks/gpu_proof/ops.py [--device CUDA0] [--seconds 90]

The programs are those of the bundle (GPU_PROOF_TESTS). First some cases of every op, spread evenly over its list, then
all of them as time allows: the ops and fusions that models here use, the others, and last those with most cases.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import chain
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
# What backends compute as one op, under the names of the program's cases, which it does not list.
FUSED = (
    "MUL_MAT_VEC_FUSION", "RMS_NORM_MUL_ADD", "RMS_NORM_MUL_ROPE", "ROPE_SET_ROWS", "ADD_RMS_NORM", "ADD_ADD",
    "SSM_CONV_BIAS_SILU", "GATED_DELTA_NET_CACHE_FUSION", "L2_NORM_BATCH", "TOPK_MOE", "MOE_REDUCE",
)  # fmt: skip
SAMPLE, SAMPLE_OF_FIRST = 6, 16  # cases of an op
MOST_CASES = 800  # of ops that are tested by one process
SAMPLE_SECONDS = 8.0  # of a process: a case may take the CPU long
MOST_BYTES = 12 << 10  # of the names of cases that one process tests; Linux allows 128 KiB
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CASE = re.compile(r"(\w+\(.*\)): (OK|.*FAIL|not supported)")
LISTED = re.compile(r"^\s+(\w+)(\([^()]*\)): (?:SUPPORTED|NOT SUPPORTED)$", re.MULTILINE)  # an argument can name it

Results = dict[str, str]
"""Case -> "OK", "FAIL" or "not supported"."""


@dataclass(frozen=True)
class Op:
    """The results of an op's cases."""

    name: str
    right: int
    wrong: list[str]  # the cases
    unsupported: int
    seconds: float
    ended: str = ""  # how, if not normally
    listed: int = 0  # cases that there are; 0: unknown

    @classmethod
    def of(cls, name: str, results: Results, seconds: float, ended: str, listed: int = 0) -> Op:
        counts = Counter(results.values())
        wrong = [case for case, result in results.items() if result == "FAIL"]
        return cls(name, counts["OK"], wrong, counts["not supported"], round(seconds, 1), ended, listed)

    @property
    def failed(self) -> bool:
        return bool(self.wrong) or self.ended.startswith("status")

    @property
    def how(self) -> str:
        return self.ended or ("a sample" if self.tested < self.listed else "")

    @property
    def tested(self) -> int:
        return self.right + len(self.wrong) + self.unsupported


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

    def cases(self) -> dict[str, list[str]]:
        """The cases of each op, as `test` takes them; none of fused ones."""
        listed, _ = self._run(["test-backend-ops", "support", "-b", self._device], 60.0)
        found: dict[str, list[str]] = {}
        for match in LISTED.finditer(listed):
            found.setdefault(match[1], []).append(match[1] + match[2])
        return found

    def ours(self, seconds: float) -> Op:
        start = time.monotonic()
        output, ended = self._run(["test_gdn_ops"], seconds)
        seen = [line for line in output.splitlines() if line.startswith(("S ", self._device))]
        wrong = [line for line in output.splitlines() if "CHECK" in line or "failed" in line]
        return Op(OURS, len(seen), wrong, output.count("not supported"), round(time.monotonic() - start, 1), ended)

    def op(self, name: str, seconds: float, like: str = "") -> Op:
        """The cases of an op whose parameters match the expression `like`."""
        start = time.monotonic()
        results, ended = self.test([name], seconds, like)
        return Op.of(name, results, time.monotonic() - start, ended)

    def test(self, which: Iterable[str], seconds: float, like: str = "") -> tuple[Results, str]:
        """All cases of ops, or the cases themselves; the results, and how the program ended if not normally."""
        threads = str(min(8, os.cpu_count() or 1))
        command = ["test-backend-ops", "test", "-b", self._device, "-o", ",".join(which), "-p", like, "-j", threads]
        output, ended = self._run(command, seconds)
        cases = [match.groups() for match in map(CASE.search, output.splitlines()) if match]
        return {case: "FAIL" if result.endswith("FAIL") else result for case, result in cases}, ended

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


def spread(cases: Sequence[str], n: int) -> list[str]:
    """At most n of the cases, evenly spread: they are listed by type and shape."""
    return list(cases) if len(cases) <= n else [cases[i * len(cases) // n] for i in range(n)]


def groups(names: Iterable[str], size: Callable[[str], int], most: int) -> Iterator[list[str]]:
    """The names in their order, in groups of a size of at most `most`; a larger one is alone."""
    group: list[str] = []
    for name in names:
        if group and sum(map(size, group)) + size(name) > most:
            yield group
            group = []
        group.append(name)
    if group:
        yield group


class End(Enum):
    """How a process ended: normally, if with wrong cases; at its time's end; in the middle of a case."""

    NORMAL = 0
    STOPPED = 1
    LOST = 2


class Tests:
    """What is tested so far. No process runs after `end`, by the monotonic clock, or longer than `each` seconds; `tell`
    is called after each."""

    def __init__(self, programs: Programs, end: float, each: float, tell: Callable[[Tests], None]) -> None:
        self._programs, self._end, self._each, self._tell = programs, end, each, tell
        self._listed = programs.cases()
        self._results: dict[str, Results] = {}
        self._seconds, self._ended = defaultdict[str, float](float), dict[str, str]()
        self._ours = programs.ours(each)

    def sample(self, names: Sequence[str]) -> None:
        """Some cases of each op; if a process is lost, those of each op on their own, and if it takes too long, of each
        that it did not come to."""
        chosen = {
            name: spread(self._listed[name], SAMPLE_OF_FIRST if name in FIRST else SAMPLE)
            for name in names
            if name in self._listed
        }
        for group in groups(chosen, lambda name: sum(len(case) + 1 for case in chosen[name]), MOST_BYTES):
            end = self._run(group, list(chain(*(chosen[name] for name in group))), SAMPLE_SECONDS)
            for name in group if end != End.NORMAL and len(group) > 1 else ():
                if end == End.LOST or not self._results.get(name):
                    self._run([name], chosen[name], SAMPLE_SECONDS / 2)

    def all(self, names: Sequence[str]) -> None:
        """All cases: small ops together, large ones alone and last."""

        def size(name: str) -> int:
            return len(self._listed.get(name, ()))

        small = [name for name in names if size(name) <= MOST_CASES]
        large = sorted((name for name in names if size(name) > MOST_CASES), key=size)
        for group in [*groups(small, size, MOST_CASES), *([name] for name in large)]:
            if self._run(group, group, self._each) == End.LOST and len(group) > 1:
                for name in group:
                    self._run([name], [name], self._each)

    def _run(self, names: Sequence[str], which: Sequence[str], most: float) -> End:
        """One process for these ops. Without time left, nothing happens."""
        left = self._end - time.monotonic()
        if left <= 1.0:
            return End.NORMAL
        start = time.monotonic()
        found, ended = self._programs.test(which, min(most, left))
        for case, result in found.items():
            self._results.setdefault(case.partition("(")[0], {})[case] = result
        for name in names:
            self._seconds[name] += (time.monotonic() - start) / len(names)
            self._ended[name] = self._how(name, ended) if len(names) > 1 else ended
        self._tell(self)
        if ended.startswith("stopped"):
            return End.STOPPED
        return End.NORMAL if not ended or (ended == "status 1" and "FAIL" in found.values()) else End.LOST

    def _how(self, name: str, ended: str) -> str:
        """How one op of a process ended."""
        op = self._op(name)
        finished = op.tested >= op.listed > 0 or not ended.startswith("stopped")
        return "" if finished and not op.wrong else ended

    @property
    def found(self) -> list[Op]:
        """Ours, and every op of which a case was tested or was to be."""
        names = dict.fromkeys([*self._results, *self._ended])
        return [self._ours, *(self._op(name) for name in names)]

    def _op(self, name: str) -> Op:
        listed = len(self._listed.get(name, ()))
        return Op.of(name, self._results.get(name, {}), self._seconds[name], self._ended.get(name, ""), listed)


def markdown(found: Sequence[Op], left: Sequence[str], footer: str) -> str:
    rows = [
        [op.name, str(op.listed or "-"), str(op.right), str(len(op.wrong)), str(op.unsupported), op.how]
        for op in found
        if op.tested or op.ended
    ]
    lines = [record.table(["op", "cases", "right", "wrong", "not supported", ""], rows), ""]
    lines += [f"- wrong: `{case}`" for op in found for case in op.wrong[:20]]
    if absent := [op.name for op in found if not (op.tested or op.ended)]:
        lines += ["", f"There are no cases of: {', '.join(absent)}."]
    if left:
        lines += ["", f"Not tested, the time was over: {', '.join(left)}."]
    total = sum(op.right for op in found), sum(len(op.wrong) for op in found)
    lines += ["", f"{total[0]:,} cases right, {total[1]:,} wrong. {footer}"]
    return "\n".join(lines) + "\n"


def parser() -> argparse.ArgumentParser:
    ap = record.parser(__doc__, "ops", n_predict=0, repeats=1)
    ap.add_argument("--device", default="CUDA0", metavar="NAME", help="ggml's name of the device")
    seconds = float(os.environ.get("GPU_PROOF_SECONDS", 96)) - 6  # the rest is for start and end
    ap.add_argument("--seconds", type=float, default=seconds, metavar="N", help="start nothing after this time")
    ap.add_argument("--each", type=float, default=25.0, metavar="N", help="most seconds of one process")
    ap.add_argument("--ops", nargs="+", metavar="OP", help="these alone, besides ours")
    return ap


def main() -> int:
    ap = parser()
    args: argparse.Namespace = ap.parse_args()
    end = time.monotonic() + args.seconds
    env = record.environment(ap, args)
    folder = os.environ.get("GPU_PROOF_TESTS")
    if not folder:
        raise DFlashError("GPU_PROOF_TESTS must name the folder of the test programs", hint="run: make gpu-proof")
    programs = Programs(Path(folder), args.device)
    names = args.ops or [*FIRST, *FUSED, *(name for name in programs.names() if name not in FIRST)]

    def save(tests: Tests) -> None:
        found = tests.found
        untested = [name for name in names if name not in [op.name for op in found]]
        figures = {**env, "ops": [asdict(op) for op in found], "not_tested": untested}
        record.save(args.out, figures, markdown(found, untested, record.footer(env)))

    tests = Tests(programs, end, args.each, save)
    tests.sample(names)
    tests.all(names)
    save(tests)
    print(markdown(tests.found, [], record.footer(env)))
    if failed := [op.name for op in tests.found if op.failed]:
        raise DFlashError(f"{', '.join(failed)}: wrong on {args.device}")
    return 0


if __name__ == "__main__":
    record.run(main)
