"""Runs the worker over damaged files and starts it again where it dies: what a fuzzing test asserts on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_DEATHS = 5


@dataclass
class Sweep:
    """What became of the files."""

    results: dict[str, str] = field(default_factory=dict)  # item -> the worker's result
    deaths: list[str] = field(default_factory=list)  # one sentence per file that ended the process
    silent: list[str] = field(default_factory=list)  # files after which the sound pair no longer answered as before
    rss: list[int] = field(default_factory=list)  # bytes, after each file of the last process

    def kinds(self) -> Counter[str]:
        return Counter(result.split(":")[0] for result in self.results.values())


def expand(items: list[str]) -> list[str]:
    """`0:3` -> `0`, `1`, `2`; names stay."""
    out: list[str] = []
    for item in items:
        first, colon, end = item.partition(":")
        out += [str(n) for n in range(int(first), int(end))] if colon and first.isdigit() else [item]
    return out


def collapse(items: list[str]) -> list[str]:
    """Seeds as ranges of one, names as they are."""
    return [f"{item}:{int(item) + 1}" if item.isdigit() else item for item in items]


def sweep(
    target: Path, drafter: Path, role: str, items: list[str], folder: Path, *, command: list[str] | None = None
) -> Sweep:
    """Give every item to a worker; after a death go on behind it, at most MAX_DEATHS times."""
    out, left = Sweep(), expand(items)
    while left and len(out.deaths) < MAX_DEATHS:
        current, what = "", "before the first file"
        out.rss = []
        with (folder / "stderr.txt").open("wb") as stderr:
            todo = items if not out.deaths else collapse(left)
            process = subprocess.Popen(
                [*(command or [sys.executable, "-m", "tests.fuzz.worker"]),
                 str(target), str(drafter), role, str(folder), *todo],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True,
            )  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                report = json.loads(line)
                if "result" not in report:
                    current, what = report["item"], report["what"]
                    continue
                out.results[current] = report["result"]
                out.rss.append(report["rss"])
                if not report["witness"]:
                    out.silent.append(f"{current} ({what})")
                left.remove(current)
            code = process.wait()
        if code == 0:
            break
        tail = (folder / "stderr.txt").read_text(errors="replace")[-1500:]
        out.deaths.append(f"exit {code} at {role} {current} ({what})\n{tail}")
        if current not in left:
            break
        left = left[left.index(current) + 1 :]
    return out
